"""Runs one replay, from the workload file to the report: the cluster, Spark, the members, the events, the summary."""

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import msgspec
import trio
from msgspec.structs import replace
from pyspark.sql import DataFrame, Observation, SparkSession, functions as f
from rich.console import Console
from rich.markup import escape

from fakebroker.client.client_config import read_client_config
from fakebroker.client.security import PLAINTEXT, ClientSecurity
from fakebroker.cluster.configs.settings import KAFKA_DEFAULTS
from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.host_port import unbracketed
from fakebroker.replay.disk_space import check_disk_space, watch_disk_space
from fakebroker.replay.embedded_cluster import EmbeddedCluster, embedded_cluster
from fakebroker.replay.members.bootstrap import addresses
from fakebroker.replay.options import INTERRUPTED, STATUS_OF, Record, ReplayOptions, Transport
from fakebroker.replay.report.summary import summarize
from fakebroker.replay.report.terminal import print_report
from fakebroker.replay.run_directory import (
    EVENTS,
    MEMBERS,
    copy_workload,
    new_directory,
    recorded_events,
    write_head,
    write_results,
    writing,
)
from fakebroker.replay.run_summary import ClusterSummary, Head, SparkSummary, Summary
from fakebroker.replay.script.generator import count_groups_by_partition, member_scripts
from fakebroker.replay.simulation.rehearsal import rehearse
from fakebroker.replay.spark.event_files import complete_events, has_events
from fakebroker.replay.spark.interruption import REPORT_LIMIT_S, Interruption, PromptEnd, wait_for_result
from fakebroker.replay.spark.live_view import live_view, status_line
from fakebroker.replay.spark.progress import Receiver, Tally, receiving
from fakebroker.replay.spark.query_settings import are_few
from fakebroker.replay.spark.session import address_for, check_master, spark_errors, spark_session, start_workers
from fakebroker.replay.spark.simulation_tasks import (
    no_outcomes,
    simulate,
    simulating_tasks,
    timeline_of,
    with_other_outcomes,
)
from fakebroker.replay.spark.tcp_tasks import TaskPlan, play_scripts
from fakebroker.replay.target_cluster import (
    DEFAULT_OFFSETS_PARTITIONS,
    broker_settings,
    brokers,
    check_answers,
    check_unused,
    offsets_partitions,
    ready_topics,
    unreachable_brokers,
)
from fakebroker.replay.verify import preconditions
from fakebroker.replay.workload.scale import scaled
from fakebroker.replay.workload.timeline import EventOutcome, Timeline, performing
from fakebroker.replay.workload.workload import Workload, load_workload


class PreparedReplay(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared replay: the cluster runs and has the topics, and the directory for the results exists.

    Attributes:
        file: Path of the workload file.
        workload: The workload, scaled.
        seed: Seed of all random choices.
        bootstrap: Bootstrap servers of the cluster, embedded or not; empty in memory.
        cluster: The embedded cluster; None without one.
        out: Directory for the results.
        partitions: Number of partitions of each topic.
        brokers: Addresses of the brokers by node id; none in memory.
        client_config: As in `ReplayOptions`.
        security: The security settings in `client_config`.
        transport: As in `ReplayOptions`.
        record: As in `ReplayOptions`.
        lanes: As in `ReplayOptions`.
        tasks: As in `ReplayOptions`.
        scale: As in `ReplayOptions`.
        interruption: Ends the replay early.
    """

    file: Path
    workload: Workload
    seed: int
    bootstrap: str
    cluster: EmbeddedCluster | None
    out: Path
    partitions: Mapping[str, int]
    brokers: Mapping[int, str] = msgspec.field(default_factory=dict)
    client_config: Path | None = None
    security: ClientSecurity = PLAINTEXT
    transport: Transport = "tcp"
    record: Record = "all"
    lanes: int | None = None
    tasks: int | None = None
    scale: float = 1.0
    interruption: Interruption = msgspec.field(default_factory=Interruption)


def play(options: ReplayOptions) -> int:
    """Replay a workload and print its report.

    Returns:
        An exit status: by the verdict, or `INTERRUPTED`.

    Raises:
        ConfigError: The workload or an option is invalid.
        FakebrokerError: The replay failed, or was stopped because the disk was full.
    """
    console = Console()
    workload = scaled(load_workload(options.file, options.protocol), options.scale, where=str(options.file))
    _check(options, workload)
    check_master(options.master)  # also before topics are created in a cluster
    seeds = (options.seed, workload.seed, random.SystemRandom().getrandbits(32))
    seed = next(seed for seed in seeds if seed is not None)
    with ExitStack() as stack:
        prompt_end = stack.enter_context(PromptEnd())
        out = stack.enter_context(new_directory(options.out, options.file.stem))
        check_disk_space(out)
        copy_workload(options.file, out)
        scale = "" if options.scale == 1 else f"scale {options.scale:g}, "
        heading = f"Workload [bold]{options.file}[/bold], {scale}seed {seed}, results in {out}"
        console.print(heading, highlight=False, soft_wrap=True)
        for line in preconditions.warnings(workload, is_embedded=options.bootstrap is None):
            console.print(f"[yellow]Warning:[/yellow] {escape(line)}", highlight=False, soft_wrap=True)
        # Ctrl-C arrives in the main thread; in a call of Spark it would corrupt the connection to Spark.
        thread = stack.enter_context(ThreadPoolExecutor(1, "replay"))
        run = _prepare(options, workload, seed, out, stack)
        if options.bootstrap is not None:
            for line in preconditions.setting_warnings(
                workload, trio.run(broker_settings, run.bootstrap, run.security)
            ):
                console.print(f"[yellow]Warning:[/yellow] {escape(line)}", highlight=False, soft_wrap=True)
        prompt_end.handle_signals()
        thread.submit(import_module, "fakebroker.replay.report.html")  # with matplotlib, while Spark starts
        with status_line(console, "Starting Spark"):
            events = workload.event_count(folds=run.record == "changes")
            spark = stack.enter_context(spark_session(options.master, out / "spark.log", events))
        # Ctrl-C before the members start is remembered, and ends them at once.
        stack.enter_context(run.interruption.running(lambda: None))
        playing = thread.submit(play_on, spark, run, console)
        try:
            summary = wait_for_result(playing)
        except KeyboardInterrupt:
            try:
                if not run.interruption.request():  # the members have stopped already
                    raise
                limit = f"for up to {REPORT_LIMIT_S:g} s. Press Ctrl-C again to quit without it"
                console.print(f"Interrupted: finishing the report, {limit}.", highlight=False)
                summary = wait_for_result(playing, REPORT_LIMIT_S)
            except (KeyboardInterrupt, TimeoutError):
                if has_events(out / EVENTS):
                    kept = f"The events until then are kept: `fakebroker report {out}` computes the report."
                    console.print(kept, highlight=False, soft_wrap=True)
                raise KeyboardInterrupt from None
        written = thread.submit(write_results, out, summary)  # while Spark stops
    summary = written.result()
    print_report(console, summary)
    if run.interruption.why:
        raise FakebrokerError(f"{run.interruption.why}; the report covers the time until then")
    if not summary.head.complete:
        return INTERRUPTED
    return STATUS_OF[summary.verdict.outcome]


def _check(options: ReplayOptions, workload: Workload) -> None:
    """Check that the options are consistent with each other and with the workload."""
    if options.bootstrap is not None:
        addresses(options.bootstrap)
        for what, is_given in (
            ("[[event]]", workload.event),
            ("[pacing] speed", workload.pacing.speed != 1),
            ("--transport memory", options.transport == "memory"),
        ):
            if is_given:
                expected = f"none with {what}, which requires the embedded cluster"
                raise ConfigError.of("--bootstrap", options.bootstrap, expected, where=str(options.file))
        _check_required(options, workload)
        return
    if options.client_config is not None:
        expected = "none without --bootstrap; the embedded cluster has no listener that asks for it"
        raise ConfigError.of("--client-config", str(options.client_config), expected)
    if options.allow_existing:
        raise ConfigError.of(
            "--allow-existing", True, "--bootstrap with it; an embedded cluster has no topics and groups"
        )
    in_memory = options.transport == "memory"
    if in_memory and options.lanes is not None:
        raise ConfigError.of("--lanes", options.lanes, "--transport tcp; in memory there are no connections")
    try:
        rehearse(workload.cluster, workload.topics, workload.events, in_memory=in_memory)
    except ConfigError as error:
        raise ConfigError.all_of(error.mistakes, where=str(options.file)) from None
    _check_required(options, workload)


def _check_required(options: ReplayOptions, workload: Workload) -> None:
    try:
        preconditions.check_required(workload, is_embedded=options.bootstrap is None)
    except ConfigError as error:
        raise ConfigError.all_of(error.mistakes, where=str(options.file)) from None


def _prepare(options: ReplayOptions, workload: Workload, seed: int, out: Path, stack: ExitStack) -> PreparedReplay:
    """Prepare the run. Over TCP, start an embedded cluster unless `--bootstrap` is given, and create the topics."""
    cluster, bootstrap, partitions, found = None, "", workload.topics, {}
    security = PLAINTEXT if options.client_config is None else read_client_config(options.client_config)
    if options.transport == "tcp":
        if options.bootstrap is None:
            speed, host = workload.pacing.speed, address_for(options.master)
            cluster = stack.enter_context(embedded_cluster(workload.cluster, seed, out, speed, host))
        bootstrap = cluster.bootstrap if cluster else options.bootstrap or ""
        has_consumer_members = any(population.has_consumer_members for population in workload.groups)
        check_answers(bootstrap, has_consumer_members=has_consumer_members, security=security)
        if cluster is None and not options.allow_existing:
            trio.run(check_unused, bootstrap, workload, security)
        partitions = trio.run(ready_topics, bootstrap, workload.topics, security)
        found = trio.run(brokers, bootstrap, security)
    return PreparedReplay(
        file=options.file,
        workload=workload,
        seed=seed,
        bootstrap=bootstrap,
        cluster=cluster,
        out=out,
        partitions=partitions,
        brokers=found,
        client_config=None if options.client_config is None else options.client_config.absolute(),
        security=security,
        transport=options.transport,
        record=options.record or ("changes" if options.transport == "memory" else "all"),
        lanes=options.lanes,
        tasks=options.tasks,
        scale=options.scale,
    )


def play_on(spark: SparkSession, run: PreparedReplay, console: Console) -> Summary:
    """Run the members on a Spark session, and compute the summary. Called in the thread "replay".

    Args:
        spark: The session.
        run: The replay.
        console: Console for live numbers.

    Returns:
        The summary, for `write_results`.

    Raises:
        FakebrokerError: A Spark job failed.
    """
    cores = spark.sparkContext.defaultParallelism
    tasks = min(run.tasks or cores, run.workload.group_count)
    scripts = member_scripts(spark, run.workload, run.seed, tasks)
    if run.transport == "memory":
        tasks = simulating_tasks(cores, run.workload, run.tasks)
    with spark_errors(run.out / "spark.log"), ThreadPoolExecutor(1, "workers") as meanwhile:
        workers = meanwhile.submit(start_workers, spark)
        if are_few(run.workload.member_count):
            scripts = scripts.localCheckpoint()  # computed now, and not sent to each task as a plan
        members = _write_scripts(scripts, run.out / MEMBERS)
        workers.result()
    head = _head(spark, run, tasks, members)
    write_head(run.out, head)  # `fakebroker report` requires it, also after a crash
    try:
        timeline = _run_members(spark, run, scripts, head, console)
    except FakebrokerError as error:
        if not has_events(run.out / EVENTS):
            raise
        raise FakebrokerError(f"{error}; `fakebroker report {run.out}` shows what was recorded before") from None
    with status_line(console, "Computing the summary"):
        partitions, reachable = final_state(run)
        gone = trio.run(unreachable_brokers, run.brokers, run.security) if reachable else []
        found = replace(head.cluster, offsets_partitions=partitions, reachable=reachable, unreachable=gone)
        head = replace(head, complete=not run.interruption.requested, cluster=found, timeline=timeline)
        write_head(run.out, head)
        with spark_errors(run.out / "spark.log"):
            return summarize(spark, run.out, head)


def _write_scripts(scripts: DataFrame, path: Path) -> int:
    """Write the scripts of the members, and return their number."""
    written = Observation()
    counted = scripts.observe(written, f.count(f.lit(1)).alias("members"))
    counted.write.mode("overwrite").parquet(str(path))
    return int(written.get["members"])


def _head(spark: SparkSession, run: PreparedReplay, tasks: int, members: int) -> Head:
    """Return the settings of the run; `complete`, `timeline` and `cluster` are completed after the replay."""
    return Head(
        workload={"file": str(run.file), **msgspec.to_builtins(run.workload)},
        seed=run.seed,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        complete=False,
        transport=run.transport,
        record=run.record,
        scale=run.scale,
        lanes=run.lanes,
        cluster=ClusterSummary(
            bootstrap=run.bootstrap,
            embedded=run.cluster is not None or run.transport == "memory",
            partitions=dict(run.partitions),
            offsets_partitions=run.workload.offsets_partitions,
            reachable=None,
        ),
        spark=SparkSummary(version=spark.version, master=str(spark.sparkContext.master), tasks=tasks),
        timeline=[],
        members=members,
    )


def final_state(run: PreparedReplay) -> tuple[int, bool]:
    """Return the partition count of `__consumer_offsets`, and whether the cluster is still reachable."""
    if not run.bootstrap:
        return run.workload.offsets_partitions, True
    if run.cluster is not None and not run.cluster.is_running:
        return run.workload.offsets_partitions, False
    found = trio.run(offsets_partitions, run.bootstrap, run.security)
    if run.cluster is not None:
        return run.workload.offsets_partitions, found is not None
    return found or DEFAULT_OFFSETS_PARTITIONS, found is not None


def _run_members(
    spark: SparkSession, run: PreparedReplay, scripts: DataFrame, head: Head, console: Console
) -> list[EventOutcome]:
    """Run all members, and write their events.

    Returns:
        The events of the workload with their outcomes.
    """
    console.print(f"Running {head.members:,} members for {run.workload.duration_s:g} s", highlight=False)
    driver = unbracketed(spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))
    outcomes = no_outcomes(spark) if run.transport == "memory" else None
    with receiving(driver, Tally) as receiver, ExitStack() as stack:
        stack.enter_context(live_view(console, receiver.total, run.workload.duration_s, head.members))
        timeline = stack.enter_context(_events(run, receiver))
        stack.enter_context(run.interruption.running(receiver.stop_tasks))
        stack.enter_context(watch_disk_space(run.out, spark.sparkContext.defaultParallelism, run.interruption.request))
        counts: Mapping[str, Sequence[int]] = {}
        if outcomes is not None and any(load.rate_per_s for load in run.workload.load):
            counts = count_groups_by_partition(spark, run.workload, run.seed, head.spark.tasks)
        plan = plan_for(run, (driver, receiver.port), counts)
        with writing(plan.directory):
            plan.directory.mkdir(exist_ok=True)
        with spark_errors(run.out / "spark.log"):
            rows = (
                play_scripts(scripts, plan) if outcomes is None else simulate(scripts, plan, head.spark.tasks, outcomes)
            )
    with writing(plan.directory):
        complete_events(plan.directory)  # removes files of failed attempts
    if rows != (found := recorded_events(run.out)):
        expected = f"{rows:,} rows, but found {found:,}; the nodes of a Spark cluster must share the directory"
        raise FakebrokerError(f"{plan.directory}: expected {expected}")
    if outcomes is not None:
        is_complete = not run.interruption.requested
        done = with_other_outcomes(outcomes.value, plan) if is_complete else outcomes.value
        return timeline_of(run.workload.events, done, is_complete=is_complete)
    return timeline.with_outcomes(run.cluster.outcomes() if run.cluster else [])


def plan_for(
    run: PreparedReplay,
    report_to: tuple[str, int],
    groups_by_partition: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> TaskPlan:
    """Return the settings that all Spark tasks share.

    Args:
        run: The replay.
        report_to: Host and port to which tasks report their progress.
        groups_by_partition: As in `TaskPlan`.
    """
    workload = run.workload
    return TaskPlan(
        bootstrap=run.bootstrap,
        report_to=report_to,
        directory=(run.out / EVENTS).absolute(),
        client_config=run.client_config,
        seed=run.seed,
        loads=workload.load,
        lanes=run.lanes,
        speed=workload.pacing.speed,
        closed_loop=workload.pacing.closed_loop,
        record=run.record,
        duration_s=workload.duration_s,
        events=workload.events,
        cluster=replace(workload.cluster, config={**KAFKA_DEFAULTS, **workload.cluster.config}),
        topics=dict(run.partitions),
        groups_by_partition=dict(groups_by_partition),
    )


@contextmanager
def _events(run: PreparedReplay, receiver: Receiver[Tally]) -> Iterator[Timeline]:
    """Perform the workload's events on the embedded cluster within the context. Simulations perform their own."""
    if run.cluster is None:
        yield Timeline()
        return
    with performing(run.workload.events, lambda: receiver.total().elapsed_ms, run.cluster.perform) as timeline:
        yield timeline
