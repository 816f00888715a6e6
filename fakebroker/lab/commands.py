"""The implementation of `fakebroker lab`. Can be imported without the extra `spark`."""

from fakebroker.lab.options import StudyOptions
from fakebroker.replay.commands import exit_status


def lab(options: StudyOptions) -> int:
    """Run a study, print its tables, and write its files.

    Returns:
        An exit status.
    """

    def command() -> int:
        from fakebroker.lab.runner import study  # requires the extra

        return study(options)

    return exit_status(command)
