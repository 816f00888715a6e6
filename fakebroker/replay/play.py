"""One replay from the workload file to the report: what is started, in which order, and stopped again."""

import json
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import trio
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from fakebroker.errors import ConfigError, FakebrokerError
from fakebroker.replay.embedded import EmbeddedCluster, embedded_cluster
from fakebroker.replay.live import live_view
from fakebroker.replay.progress import receiving
from fakebroker.replay.report import print_report
from fakebroker.replay.run import ReplayOptions
from fakebroker.replay.scripts import member_scripts
from fakebroker.replay.session import SPARK_ERRORS, cause_of, spark_session
from fakebroker.replay.summary import MEANING, summarize
from fakebroker.replay.task import Plan, play_scripts
from fakebroker.replay.timeline import happening
from fakebroker.replay.topics import ready_topics
from fakebroker.replay.verdict import judge
from fakebroker.replay.workload import Workload, load_workload

_FILES = {
    "summary.json": "all numbers of this report, and what they mean",
    "events.parquet": "one row a request",
    "spark.log": "what Spark had to say",
    "cluster.log": "what the embedded cluster had to say",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a replay is of and about.

    Attributes:
        file: The workload's file, for the summary.
        bootstrap: Of the cluster, embedded or not.
        cluster: The embedded one, if it is that.
        out: Where the results go; it exists.
    """

    file: Path
    workload: Workload
    seed: int
    bootstrap: str
    cluster: EmbeddedCluster | None
    out: Path


def play(options: ReplayOptions) -> bool:
    """Play what the options say and report on it.

    Returns:
        Whether the verdict is good.

    Raises:
        FakebrokerError: It could not be played.
    """
    console = Console()
    workload = load_workload(options.file)
    if options.bootstrap and workload.event:
        raise ConfigError(f"{options.file}: [[event]] is for an embedded cluster, --bootstrap names another")
    seed = next(
        (seed for seed in (options.seed, workload.seed) if seed is not None), random.SystemRandom().getrandbits(32)
    )
    out = _directory(options, seed)
    console.print(
        f"Workload [bold]{options.file}[/bold], seed {seed}, results in {out}", highlight=False, soft_wrap=True
    )
    with ExitStack() as stack:
        # Python's main thread must be free for Ctrl-C; inside a call of Spark it would garble the conversation with it.
        thread = stack.enter_context(ThreadPoolExecutor(1, "replay"))
        cluster = None if options.bootstrap else stack.enter_context(embedded_cluster(workload.cluster, seed, out))
        bootstrap = cluster.bootstrap if cluster else options.bootstrap or ""
        partitions = trio.run(ready_topics, bootstrap, workload.topics)
        with _stage(console, "Starting Spark"):
            spark = stack.enter_context(spark_session(options.master, out / "spark.log"))
        run = Run(
            file=options.file,
            workload=workload,
            seed=seed,
            bootstrap=bootstrap,
            cluster=cluster,
            out=out,
        )
        summary = thread.submit(play_on, spark, run, partitions, console).result()
    print_report(console, summary)
    return bool(summary["verdict"]["passed"])


def play_on(spark: SparkSession, run: Run, partitions: Mapping[str, int], console: Console) -> dict[str, Any]:
    """Play on a Spark session against a cluster whose topics are there.

    Args:
        partitions: How many partitions each topic has.
        console: Shows live numbers.

    Returns:
        The summary, as written to `summary.json`.

    Raises:
        FakebrokerError: The members could not play.
    """
    tasks = min(spark.sparkContext.defaultParallelism, run.workload.groups.count)
    scripts = member_scripts(spark, run.workload, run.seed, tasks).cache()
    members = scripts.count()
    started = datetime.now(UTC)
    events = _played(spark, run, scripts, members, console).cache()
    with _stage(console, "Working out the summary"):
        numbers = summarize(spark, events)
        summary = {
            "workload": {"file": str(run.file), **msgspec.to_builtins(run.workload)},
            "seed": run.seed,
            "started": started.isoformat(timespec="seconds"),
            "cluster": {
                "bootstrap": run.bootstrap,
                "embedded": run.cluster is not None,
                "partitions": dict(partitions),
            },
            "spark": {"version": spark.version, "tasks": tasks},
            "groups": run.workload.groups.count,
            "members": members,
            "meaning": MEANING,
            **numbers,
            "verdict": judge(spark, events, scripts, partitions, run.workload.expect, numbers),
            "directory": str(run.out),
            "files": {name: what for name, what in _FILES.items() if run.cluster or name != "cluster.log"},
        }
    (run.out / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return summary


def _played(spark: SparkSession, run: Run, scripts: DataFrame, members: int, console: Console) -> DataFrame:
    """The events of all members, written and read again, so that the members play once."""
    path = str(run.out / "events.parquet")
    console.print(f"Playing {members:,} members for {run.workload.duration_s:g} s", highlight=False)
    driver = spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1")
    with receiving(driver) as receiver, ExitStack() as stack:
        stack.enter_context(live_view(console, receiver.total, run.workload.duration_s, members))
        if run.cluster is not None:
            happening_now = happening(run.workload.event, lambda: receiver.total().elapsed_ms, run.cluster.perform)
            stack.enter_context(happening_now)
        plan = Plan(bootstrap=run.bootstrap, report_to=(driver, receiver.port))
        try:
            play_scripts(scripts, plan).write.mode("overwrite").parquet(path)
        except SPARK_ERRORS as error:
            raise FakebrokerError(f"the replay broke off (see {run.out / 'spark.log'}): {cause_of(error)}") from None
    return spark.read.parquet(path)


@contextmanager
def _stage(console: Console, what: str) -> Iterator[None]:
    """Say what is being done; in a terminal something moves meanwhile."""
    console.print(what)
    with console.status(""):
        yield


def _directory(options: ReplayOptions, seed: int) -> Path:
    """Where the results go, made."""
    out = options.out or Path("runs") / f"{options.file.stem}-{seed}-{datetime.now():%Y%m%d-%H%M%S}"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FakebrokerError(f"{out}: expected a directory that can be written to: {error.strerror}") from None
    return out
