"""The search of one target, in this process: coverage-guided, by atheris and libFuzzer.

    python -m tests.fuzz.process TARGET [OPTION OR DIRECTORY OF LIBFUZZER ...]
    python -m tests.fuzz.process TARGET FILE

The second form runs the target with one input, such as one that `make fuzz` has written for a crash.
"""

import logging
import sys
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Any

import atheris

with atheris.instrument_imports(include=["fakebroker"]):
    from fakebroker.protocol import compiler
    from tests.fuzz.targets import TARGETS


_PREFIX = "-artifact_prefix="


def _instrument_codecs() -> None:
    """Instrument decoders and encoders, which are compiled when they are first used."""
    compile_plain = compiler.Writer.compile

    def compile_instrumented(writer: compiler.Writer) -> Any:
        return atheris.instrument_func(compile_plain(writer))

    setattr(compiler.Writer, "compile", compile_instrumented)  # noqa: B010  # only in this process


def _keeping_failures(run: Callable[[bytes], None], prefix: str) -> Callable[[bytes], None]:
    """Return a target that writes an input that fails to a file, because not every libFuzzer does for exceptions."""

    def run_or_keep(data: bytes) -> None:
        try:
            run(data)
        except BaseException:
            Path(f"{prefix}crash-{sha1(data).hexdigest()}").write_bytes(data)
            raise

    return run_or_keep


def main(name: str, arguments: list[str]) -> None:
    """Search, until the options of libFuzzer end it. Ends the process."""
    logging.disable(logging.CRITICAL)
    _instrument_codecs()
    target = TARGETS[name]
    mutate, more = target.mutate, {}
    if mutate is not None:

        def mutate_or_not(data: bytes, max_size: int, seed: int) -> bytes:
            random = Random(seed)
            if random.random() < 0.3:
                plain: bytes = atheris.Mutate(data, max_size)
                return plain
            return mutate(data, random)[:max_size]

        more["custom_mutator"] = mutate_or_not
    prefixes = [each.removeprefix(_PREFIX) for each in arguments if each.startswith(_PREFIX)]
    run = _keeping_failures(target.run, prefixes[0]) if prefixes else target.run
    atheris.Setup([sys.argv[0], f"-max_len={target.max_bytes}", *arguments], run, **more)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
