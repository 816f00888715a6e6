"""Apply the mutations of `mutations.json` one by one, and record which test or check notices each.

    make mutate       or    python -m tests.mutation.mutate run [--out FILE] [--scratch DIRECTORY] [ID ...]
    python -m tests.mutation.mutate find

`run` works in a copy of the project. For each mutation it runs the test that noticed it in the last run
(`results.json`), then the tests of the mutated package, then mypy and all other fast tests, up to the first failure. It
writes the results to FILE after each mutation. If FILE exists, only mutations without a result in it are run; with IDs,
these are run in any case. The exit status is 1 if a mutation that was noticed in the last run is not noticed any more.
To keep the new results, copy FILE to `results.json`.

`find` prints file, line and function of each mutation. The exit status is 1 if one is not found in the source.
"""

import argparse
import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import gettempdir

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PYTHON = sys.executable
PYTEST = (PYTHON, "-m", "pytest", "-q", "-x", "--color=no", "-p", "no:cacheprovider", "-m", "not slow and not spark")
IN_PARALLEL = ("--numprocesses", "2", "--dist", "worksteal")
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "runs", "bench-results", "build", "dist")
TEST_TIMEOUT_S = 240.0  # Without any output, which does not take as long even on a slow machine.
MYPY_TIMEOUT_S = 900.0
NO_TESTS_RAN = 5  # An exit code of pytest.
MORE_TESTS = {"cluster": ["tests/server"], "coordinator": ["tests/transcripts"]}


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of one expression or statement, which tests should notice.

    Attributes:
        id: Its number.
        file: Path of the module, relative to the project.
        function: Qualified name of the function in the module.
        kind: `negate` a condition, `off_by_one`, `swap` two arguments, or `drop` a statement.
        before: Source of the expression or statement. It is compared by its syntax tree, so formatting does not matter.
        after: Source of the replacement.
        occurrence: Index of the occurrence in the function, if `before` occurs more than once.
        drawn_as: Qualified name of the function when the mutation was drawn, if it was different.
    """

    id: int
    file: str
    function: str
    kind: str
    before: str
    after: str
    occurrence: int = 0
    drawn_as: str | None = None

    @property
    def tests(self) -> list[str]:
        """The paths of the tests of the mutated package."""
        name = Path(self.file).parts[1]
        paths = [f"tests/{name}", *MORE_TESTS.get(name, ())]
        if not (ROOT / paths[0]).is_dir():
            paths = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("test_*.py"))
        return paths


@dataclass(frozen=True, slots=True)
class Result:
    """The result of running one mutation.

    Attributes:
        id: Number of the mutation.
        function: Qualified name of the mutated function.
        noticed_by: "package" for a test of the mutated package, "check" for another test or mypy, None if the mutation
            was not noticed.
        test: The first test that failed, "mypy" or "time-out".
    """

    id: int
    function: str
    noticed_by: str | None
    test: str | None


def read_mutations() -> list[Mutation]:
    return [Mutation(**each) for each in json.loads((HERE / "mutations.json").read_text())["mutations"]]


def read_results(path: Path = HERE / "results.json") -> dict[int, Result]:
    found = [Result(**each) for each in json.loads(path.read_text())] if path.exists() else []
    return {result.id: result for result in found}


def write_results(path: Path, results: dict[int, Result]) -> None:
    rows = ",\n ".join(json.dumps(asdict(results[key])) for key in sorted(results))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[\n {rows}\n]\n")


# Changing the source


def functions(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield the functions and methods of a module with their qualified names."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants, except those of f-strings, which have no positions before Python 3.12."""
    yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from nodes(child)


def span(node: ast.AST, source: bytes) -> tuple[int, int]:
    """Return the byte offsets of the start and the end of a node in the source."""
    assert isinstance(node, (ast.expr, ast.stmt))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.splitlines(keepends=True)
    starts = [sum(map(len, lines[: number - 1])) for number in (node.lineno, node.end_lineno)]
    return starts[0] + node.col_offset, starts[1] + node.end_col_offset


def mutated(mutation: Mutation, source: bytes) -> tuple[bytes, int]:
    """Return the mutated source of a module, and the number of the first changed line.

    Raises:
        LookupError: The function does not exist, or does not contain `before`.
    """
    before: ast.AST = ast.parse(mutation.before).body[0]
    if isinstance(before, ast.Expr) and mutation.kind != "drop":
        before = before.value
    dump = ast.dump(before)
    found = [
        span(node, source)
        for name, function in functions(ast.parse(source).body)
        if name == mutation.function
        for node in nodes(function)
        if type(node) is type(before) and ast.dump(node) == dump
    ]
    if len(found) <= mutation.occurrence:
        raise LookupError(f"mutation {mutation.id}: {mutation.file} {mutation.function}: not found: {mutation.before}")
    start, end = sorted(found)[mutation.occurrence]
    is_expression = isinstance(ast.parse(mutation.after).body[0], ast.Expr)
    after = f"({mutation.after})" if is_expression else mutation.after
    return source[:start] + after.encode() + source[end:], source[:start].count(b"\n") + 1


# Running tests


def execute(command: Sequence[str], tree: Path, quiet_s: float) -> tuple[int | None, str]:
    """Run a command in a copy of the project, and kill it and its child processes at the end.

    Args:
        command: The command.
        tree: The copy of the project. The output is also written to the file next to it, with the suffix `.log`.
        quiet_s: After this time without output, in seconds, the command is killed.

    Returns:
        The exit code, or None if the command was killed, and the output.
    """
    log = tree.with_name(f"{tree.name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["nice", *command], cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            size, grown_at = 0, time.monotonic()
            while process.poll() is None and time.monotonic() - grown_at < quiet_s:
                time.sleep(0.1)
                if log.stat().st_size != size:
                    size, grown_at = log.stat().st_size, time.monotonic()
            code = process.poll()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, log.read_text(errors="replace")


def failed_test(tree: Path, *arguments: str) -> str | None:
    """Run tests. Returns the first test that failed, "time-out" or "exit code N"; None if all passed."""
    code, text = execute([*PYTEST, *arguments], tree, TEST_TIMEOUT_S)
    if code in (0, NO_TESTS_RAN):
        return None
    found = re.search(r"^(?:FAILED|ERROR) (tests/\S+?\.py.*?)(?: - .*)?$", text, re.MULTILINE)
    return "time-out" if code is None else found[1] if found else f"exit code {code}"


def repeated_failure(tree: Path, *arguments: str) -> str | None:
    """Run tests in parallel. If the failed test passes alone, as happens on a busy machine, run all once more."""
    test = failed_test(tree, *IN_PARALLEL, *arguments)
    if test is None or not test.startswith("tests/") or failed_test(tree, test):
        return test
    return failed_test(tree, *IN_PARALLEL, *arguments)


def without_parameters(test: str) -> str:
    """Return the id of a test without the parameters of one case, which may not exist any more."""
    return test.partition("[")[0]


def first_failure(mutation: Mutation, known: str | None, tree: Path) -> Result:
    """Run tests and mypy until the first failure, in a copy of the project with a mutation.

    Args:
        mutation: The mutation, which has been applied.
        known: The test that noticed it in the last run, which is run first.
        tree: The copy of the project.
    """
    result = partial(Result, mutation.id, mutation.function)
    if known is not None and known.startswith("tests/") and failed_test(tree, without_parameters(known)):
        return result("package" if known.startswith(tuple(mutation.tests)) else "check", known)
    if test := repeated_failure(tree, *mutation.tests):
        return result("package", test)
    if execute([PYTHON, "-m", "mypy"], tree, MYPY_TIMEOUT_S)[0] != 0:
        return result("check", "mypy")
    # `test_mutations.py` would notice every mutation, because its `before` is not found any more.
    test = repeated_failure(tree, *(f"--ignore={path}" for path in ["tests/mutation", *mutation.tests]))
    return result("check" if test else None, test)


def run(ids: Sequence[int], out: Path, tree: Path) -> int:
    """Run mutations and write their results. Returns the exit status.

    Args:
        ids: The mutations; if empty, those without a result in `out`.
        out: The file of results.
        tree: Where to copy the project.
    """
    known, results = read_results(), read_results(out)
    chosen = [each for each in read_mutations() if (each.id in ids if ids else each.id not in results)]
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, ignore=NOT_COPIED)
    recorded = {known[each.id].test or "" for each in chosen if each.id in known}
    tests = sorted({without_parameters(test) for test in recorded if test.startswith("tests/")})
    if tests and (failure := failed_test(tree, *IN_PARALLEL, *tests)):
        print(f"failed without mutations: {failure}; see {tree}.log", file=sys.stderr)
        return 2
    for mutation in chosen:
        path = tree / mutation.file
        source = path.read_bytes()
        path.write_bytes(mutated(mutation, source)[0])
        last = known.get(mutation.id)
        try:
            result = results[mutation.id] = first_failure(mutation, last.test if last else None, tree)
        finally:
            path.write_bytes(source)
        write_results(out, results)
        print(f"{result.id:3} {result.function}: {result.test or 'not noticed'}", flush=True)
    lost = [key for key, last in known.items() if last.noticed_by and key in results and not results[key].noticed_by]
    print(f"{sum(bool(each.noticed_by) for each in results.values())} of {len(results)} noticed; see {out}")
    for key in lost:
        print(f"not noticed any more: {key} {known[key].function}, noticed by {known[key].test} before")
    return 1 if lost else 0


def find() -> int:
    """Print file, line and function of each mutation. Returns the exit status."""
    lost = 0
    for mutation in read_mutations():
        try:
            line = mutated(mutation, (ROOT / mutation.file).read_bytes())[1]
            print(f"{mutation.id:3} {mutation.file}:{line} {mutation.function}")
        except (LookupError, OSError) as error:
            lost += 1
            print(error)
    return 1 if lost else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Run mutations of fakebroker against its tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run tests with each mutation")
    runs.add_argument("ids", nargs="*", type=int, metavar="ID", help="mutations to run, even if they have results")
    runs.add_argument("--out", type=Path, default=ROOT / "runs/mutations.json", help="results; default: %(default)s")
    runs.add_argument(
        "--scratch",
        type=Path,
        default=Path(gettempdir(), "fakebroker-mutation"),
        help="where to copy the project; default: %(default)s",
    )
    commands.add_parser("find", help="print file, line and function of each mutation")
    arguments = parser.parse_args()
    # Background jobs of a shell, and their child processes, ignore SIGINT, which some tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run(arguments.ids, arguments.out, arguments.scratch.resolve()) if arguments.command == "run" else find()


if __name__ == "__main__":
    sys.exit(main())
