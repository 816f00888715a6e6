# The commands of this project. Everything runs in a virtual environment of its own, made on first use.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# More than the cores that there are at least, for many tests wait for clients.
PARALLEL := --numprocesses 3 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test check lint soak rewrite mutate bench bench-replay serve clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

demo: $(STAMP) ## replay a workload with Spark against an embedded cluster and print the report
	$(BIN)/fakebroker replay scenarios/workloads/steady-state.toml

test: $(STAMP) ## run the whole test suite
	$(BIN)/python -m pytest -m "not spark" $(PARALLEL)
	$(BIN)/python -m pytest -m spark --numprocesses 2 --dist loadfile tests/replay

check: lint ## lint, types and the fast tests
	$(BIN)/python -m pytest -q -m "not slow and not spark" $(PARALLEL)

lint: $(STAMP) ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

rewrite: $(STAMP) ## regenerate the expectations of transcripts and the generated parts of documents; read the diff
	$(BIN)/python -m tests.transcripts.rewrite
	$(BIN)/python -m tests.documents.generated

soak: $(STAMP) ## run every case of the tests that `make test` runs a sample of (about an hour), and write scenarios/soak.md
	FAKEBROKER_SOAK=1 $(BIN)/python -m pytest -m soak --soak-report scenarios/soak.md --numprocesses 2 --dist worksteal

mutate: $(STAMP) ## run the mutations of tests/mutation against the tests, for about an hour; start again to go on
	$(BIN)/python -m tests.mutation.mutate run

bench: $(STAMP) ## measure against librdkafka's mock cluster, and what control over HTTP costs
	$(BIN)/python -m tests.bench.bench
	$(BIN)/python -m tests.bench.control
	$(BIN)/python -m tests.bench.control_pauses

bench-replay: $(STAMP) ## measure the replay, and real clients that do the same
	$(BIN)/python -m tests.bench.replay

serve: $(STAMP) ## run a fake cluster on ports 9092 to 9094
	$(BIN)/fakebroker serve

clean: ## remove all that is generated
	rm -rf $(VENV) runs bench-results build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fakebroker needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
