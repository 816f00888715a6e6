# All commands run in a virtual environment, which is created on first use.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two processes more than the smallest machine has cores, because many tests wait for clients.
PARALLEL := --numprocesses 4 --dist worksteal
# Tests start many Python processes. Without files of byte code, each would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

# Benchmarks must not run while a replay before them writes an archive in the background.
bench bench-control bench-replay soak: export FAKEBROKER_CLASS_ARCHIVE := never

# How long `make fuzz` searches, and in which targets (all of tests/fuzz/targets, unless some are given).
SECONDS ?= 60
# How many seconds the endurance run of `make soak` takes.
ENDURANCE ?= 1800
TARGETS ?=
# How long `make histories` compares, and with which release.
HISTORIES ?= 3600
RELEASE ?= 4.4
# The only release that `make conformance` compares, with the transcripts that take half a minute or less; and that
# `make histories` compares for some seconds.
CHECK ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check lint conformance histories soak fuzz rewrite mutate bench bench-control bench-replay class-archive serve clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

demo: $(STAMP) ## replay a workload with Spark against an embedded cluster and print the report
	$(BIN)/fakebroker replay scenarios/workloads/steady-state.toml

test: $(STAMP) ## run all tests
	@trap 'exit 130' INT; failed=; \
	$(BIN)/python -m pytest -m "not spark" $(PARALLEL) || failed="tests without Spark"; \
	$(BIN)/python -m pytest -m spark --numprocesses 3 --dist loadfile tests/replay tests/lab \
		|| failed="$${failed:+$$failed, }tests with Spark"; \
	test -z "$$failed" || { echo "make test: failed: $$failed"; exit 1; }

check: lint ## lint, check types and run the fast tests
	$(BIN)/python -m pytest -q -m "not slow and not spark" $(PARALLEL)

lint: $(STAMP) ## lint and check types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

rewrite: $(STAMP) ## regenerate the expectations of transcripts and the generated parts of documents; read the diff
	$(BIN)/python -m tests.transcripts.rewrite
	$(BIN)/python -m tests.lab.rewrite
	$(BIN)/python -m tests.documents.generated

conformance: $(STAMP) ## compare the transcripts with five releases of Apache Kafka, and run the recipes on two (45 minutes; needs Java 17 and Maven), or with CHECK=4.4 in one minute
	$(BIN)/python -m tests.kafka.conformance $(if $(CHECK),--check $(CHECK))
	$(if $(CHECK),,$(BIN)/python -m tests.kafka.both)

histories: $(STAMP) ## compare random requests with Apache Kafka (an hour, HISTORIES=3600; RELEASE=4.4; needs Java 17 and Maven)
	$(BIN)/python -m tests.histories.run $(if $(CHECK),--release $(CHECK) --seconds 15 --seed 1,--release $(RELEASE) \
		--seconds $(HISTORIES) --report scenarios/histories.md)

soak: $(STAMP) ## run all cases of tests that otherwise run a sample, the endurance run (half an hour, ENDURANCE=1800), and random histories (an hour)
	$(BIN)/python -m tests.endurance.run $(ENDURANCE) --report scenarios/endurance.md
	FAKEBROKER_SOAK=1 $(BIN)/python -m pytest -m soak -o faulthandler_timeout=0 --soak-report=scenarios/soak.md --numprocesses 2 --dist worksteal
	$(MAKE) histories

fuzz: $(STAMP) ## search inputs that break decoders, data directories, the cluster or the control API, for SECONDS=60; prints a table
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,fuzz]'
	$(BIN)/python -m tests.fuzz.run $(SECONDS) $(TARGETS)

mutate: $(STAMP) ## check that tests notice the mutations of tests/mutation (about an hour); continues if interrupted
	$(BIN)/python -m tests.mutation.mutate run

bench: $(STAMP) ## measure against librdkafka's mock cluster and an echo in C; fails if ratios fall in two runs in a row
	$(BIN)/python -m tests.bench.bench

bench-control: $(STAMP) ## measure the cost of the HTTP API
	$(BIN)/python -m tests.bench.control
	$(BIN)/python -m tests.bench.control_pauses

bench-replay: $(STAMP) ## compare replays with real clients under the same load, and measure the cost of starting a replay
	$(BIN)/python -m tests.bench.replay
	$(BIN)/python -m tests.bench.startup

class-archive: $(STAMP) ## write an archive of Spark's classes (190 MB), with which replays take less time; needs a minute
	$(BIN)/python -m fakebroker.replay.spark.class_archive

serve: $(STAMP) ## run a fake cluster on ports 9092 to 9094
	$(BIN)/fakebroker serve

clean: ## remove all generated files
	rm -rf $(VENV) .fuzz runs bench-results build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fakebroker needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@: > $@
