"""Mutated requests of transcripts run through the target `cluster`; and what mutations do."""

from random import Random

from tests.fuzz.mutation import decoded_frame, mutated
from tests.fuzz.steps import parse_steps
from tests.fuzz.targets import cluster_frames
from tests.support.soak import cases, soak

MUTATIONS = 8


@soak
def test_no_mutation_of_a_transcript_fails() -> None:
    seeds = [*cluster_frames.seeds()]
    for seed in cases(100, soak=20_000):
        random = Random(seed)
        data = random.choice(seeds)
        for _ in range(random.randint(1, MUTATIONS)):
            data = mutated(data, random)
        try:
            cluster_frames.run(data)
        except Exception as error:
            error.add_note(f"seed {seed}, with the input {data.hex()}")
            raise


def test_mutations_are_repeatable_and_keep_most_frames_valid() -> None:
    frames, valid, changed = 0, 0, 0
    for number, seed in enumerate(cluster_frames.seeds()):
        data = mutated(seed, Random(number))
        assert data == mutated(seed, Random(number))
        changed += data != seed
        for step in parse_steps(data):
            frames += bool(step.frame)
            valid += bool(step.frame) and decoded_frame(step.frame) is not None
    assert changed > 200
    assert valid > 0.95 * frames
