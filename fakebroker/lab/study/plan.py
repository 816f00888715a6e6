"""What a study runs, as plain data that Spark sends to its tasks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import msgspec

from fakebroker.errors import ConfigError, one_of
from fakebroker.lab.design import Design
from fakebroker.lab.designs import DESIGNS, design_from, design_named
from fakebroker.lab.options import StudyOptions
from fakebroker.lab.scenario.scale import scaled
from fakebroker.lab.scenario.scenario import Scenario, load_scenario

_SUFFIX = ".py"


class RunKey(NamedTuple):
    """One run.

    Attributes:
        design: Name of the design.
        scenario: Name of the scenario.
        seed: The seed.
    """

    design: str
    scenario: str
    seed: int


class StudyPlan(msgspec.Struct, frozen=True):
    """The runs of a study.

    Attributes:
        scenarios: By name.
        about: The comments at the beginning of their files, by name.
        designs: The names of designs in the order of reports, with the source of those that are not in
            `lab.designs`, and its path.
        seeds: The seeds.
    """

    scenarios: dict[str, Scenario]
    about: dict[str, str]
    designs: dict[str, tuple[str, str] | None]
    seeds: range

    def design(self, name: str) -> Design:
        """Return a design by its name."""
        source = self.designs[name]
        return design_named(name) if source is None else design_from(*source)

    def runs(self) -> list[RunKey]:
        """Return all runs. Scenarios with the most members come first, so that the last runs are short."""
        ordered = sorted(self.scenarios, key=lambda name: -self.scenarios[name].member_count)
        return [
            RunKey(design, scenario, seed) for scenario in ordered for seed in self.seeds for design in self.designs
        ]

    @property
    def duration_ms(self) -> float:
        """The virtual time of all runs together."""
        per_scenario = len(self.designs) * len(self.seeds)
        return sum(scenario.duration_s * 1000 for scenario in self.scenarios.values()) * per_scenario


def plan_of(options: StudyOptions) -> StudyPlan:
    """Return the plan of a study.

    Raises:
        ConfigError: A scenario or an option is invalid.
    """
    names = Counter(path.stem for path in options.files)
    for path in options.files:
        if names[path.stem] > 1:
            raise ConfigError.of("file", str(path), "scenario files with different names")
    scenarios = {path.stem: scaled(load_scenario(path), options.scale) for path in options.files}
    designs: dict[str, tuple[str, str] | None] = {}
    for name, source in _designs(options.designs or DESIGNS):
        if name in designs:
            raise ConfigError.of("--designs", name, "each design once")
        designs[name] = source
    about = {path.stem: _about(path) for path in options.files}
    return StudyPlan(scenarios, about, designs, range(options.seed, options.seed + options.seeds))


def _about(path: Path) -> str:
    """Return the comment at the beginning of a scenario file."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8-sig").splitlines())
    return " ".join(line.removeprefix("#").strip() for line in lines)


def _designs(names: Sequence[str]) -> Iterator[tuple[str, tuple[str, str] | None]]:
    for name in names:
        if name.endswith(_SUFFIX):
            try:
                source = Path(name).read_text(encoding="utf-8"), name
            except OSError as error:
                raise ConfigError.of("--designs", name, f"a file that can be read: {error.strerror}") from None
            yield design_from(*source).name, source
        elif name in DESIGNS:
            yield name, None
        else:
            raise ConfigError.of("--designs", name, f"{one_of(DESIGNS, name)}, or a file *{_SUFFIX}")
