"""The implementation of `fakebroker lab`. Can be imported without the extra `spark`."""

from fakebroker.lab.options import StudyOptions
from fakebroker.replay.commands import exit_status


def lab(options: StudyOptions) -> int:
    """Run a study, print its tables, and write its files.

    Returns:
        An exit status.
    """

    def command() -> int:
        if options.histories is not None:
            from fakebroker.lab.history.command import search_histories  # requires the extra

            return search_histories(options.designs, options.histories, options.seed, options.out)
        if options.placement:
            from fakebroker.lab.placement.command import study_placement  # requires the extra
            from fakebroker.lab.placement.placement_plan import plan_of

            seeds = tuple(range(options.seed, options.seed + options.seeds))
            return study_placement(plan_of(options.groups, seeds), options.master, options.out)
        from fakebroker.lab.runner import study

        return study(options)

    return exit_status(command)
