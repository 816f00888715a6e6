"""The designs of group coordination, one module each, and their names.

A module converts between the interface of `lab.design` and a member and a coordinator. Members and coordinators of
protocols that brokers serve are in `client/member/` and `coordinator/`; the rewrite's in `client/member/rewrite/` and
`proposals/consumer_rewrite/`; the options' in the module itself and in `options/`. Start with classic.py. To add a
design, write a module and add its name here; see scenarios/lab/README.md. A study can also run designs in other files.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from fakebroker.errors import ConfigError, one_of
from fakebroker.lab.design import Design

DESIGNS = ("classic", "consumer", "rewrite", "option-1a", "option-1b", "option-1c")
"""The names of all designs, in the order of reports. The module of a name has underscores for hyphens."""


def design_named(name: str) -> Design:
    """Return a design by its name.

    Raises:
        ConfigError: There is no such design.
    """
    if name not in DESIGNS:
        raise ConfigError.of("design", name, one_of(DESIGNS, name))
    design: Design = import_module(f"fakebroker.lab.designs.{name.replace('-', '_')}").DESIGN
    return design


def design_from(source: str, name: str) -> Design:
    """Return the design in the source of a module, its `DESIGN`.

    Args:
        source: The source.
        name: The path of its file, for errors and tracebacks.

    Raises:
        ConfigError: The module cannot be imported, or has no design.
    """
    module = ModuleType(f"fakebroker_lab_design_{Path(name).stem}")
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except Exception as error:  # the code of a user
        raise ConfigError(f"{name}: cannot be imported: {type(error).__name__}: {error}") from error
    design = getattr(module, "DESIGN", None)
    if not isinstance(design, Design):
        raise ConfigError.of("DESIGN", design, "a fakebroker.lab.Design", where=name)
    return design
