"""The designs of group coordination, one module each, and their names.

A module converts between the interface of `lab.design` and a member and a coordinator. Those of protocols that brokers
serve are in `coordinator/` and `client/member/`; those that exist only here are in the module itself. Start with
classic.py. To add a design, write a module and add its name here; see scenarios/lab/README.md.
"""

from importlib import import_module

from fakebroker.errors import ConfigError, one_of
from fakebroker.lab.design import Design

DESIGNS = ("classic", "rewrite")
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
