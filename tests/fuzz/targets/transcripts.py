"""The requests of transcripts, as steps of the target `cluster`."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fakebroker.cluster.cluster import Cluster
from fakebroker.conform.transcript import Transcript, parse, transcript_files
from fakebroker.protocol.frames import request_frame
from fakebroker.protocol.schema import Message
from tests.fuzz.steps import LAYOUTS, advance_step, frame_step
from tests.support.transcripts.files import play_on_fake
from tests.support.transcripts.targets import CoreRequest, CoreTarget

_SIZE_BYTES = 4


class _Recorder(CoreTarget):
    """A target that keeps the steps of the transcript. Commands are not among them.

    Attributes:
        steps: The steps, encoded.
    """

    def __init__(self, transcript: Transcript, release: str | None = None) -> None:
        super().__init__(transcript, release)
        self.steps = bytearray()

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    async def send(self, client_id: str, node_id: int, request: Message, version: int) -> CoreRequest:
        self.steps += frame_step(node_id, request_frame(request, version, 1, client_id)[_SIZE_BYTES:])
        return await super().send(client_id, node_id, request, version)

    async def advance(self, by_ms: int) -> None:
        self.steps += advance_step(by_ms)
        await super().advance(by_ms)


def _layout_of(transcript: Transcript) -> int | None:
    """Return the number of the layout that the cluster of a transcript has; None if none has it."""
    if transcript.config or transcript.as_version or transcript.proposals:
        return None
    layout = transcript.brokers, transcript.topics
    return LAYOUTS.index(layout) if layout in LAYOUTS else None


def _record(path: Path) -> tuple[_Recorder, int] | None:
    transcript = parse(path.read_text(), path.name)
    layout = _layout_of(transcript)
    if layout is None:
        return None
    recorders: list[_Recorder] = []

    def recorder(transcript: Transcript, release: str | None) -> _Recorder:
        recorders.append(_Recorder(transcript, release))
        return recorders[-1]

    play_on_fake(transcript, recorder)
    return recorders[0], layout


@cache
def _recorded() -> tuple[tuple[_Recorder, int], ...]:
    return tuple(found for path in transcript_files() if (found := _record(path)) is not None)


def recorded_steps() -> Iterator[tuple[int, bytes]]:
    """Yield the layout and the steps of each transcript whose cluster has a layout of `LAYOUTS`."""
    for recorder, layout in _recorded():
        yield layout, bytes(recorder.steps)


def recorded_clusters() -> Iterator[Cluster]:
    """Yield the clusters of these transcripts as they are at the end."""
    for recorder, _ in _recorded():
        yield recorder.cluster
