# Everything runs in .venv, which `setup` makes and keeps up to date; see scripts/setup.sh.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# setup leaves this folder only if the machine has no Java of its own. Asked when a recipe runs, not when make starts.
JAVA := if [ -d .venv/java-home ]; then export JAVA_HOME="$(CURDIR)/.venv/java-home"; fi;

# Some machines set this. Then every Python process compiles all sources again, and a test run starts hundreds of them.
unexport PYTHONDONTWRITEBYTECODE

ARGS ?=
# So many tests at a time: each process has a Spark of its own, about 1.5 GB. 0 runs them in one, for a debugger.
# In their order: what kills processes first, because it takes longest, and many small ones last.
WORKERS ?= 2
QUICK_SPARK := .venv/spark-classes.jsa
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder
SIZE ?= small
BENCHMARKS ?= persist replay

.PHONY: help setup demo test test-long test-all stress simulate freeze-check lint format types layers check bench lock clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## prepare .venv (the other targets do it by themselves)
	@scripts/setup.sh

demo: setup ## ingest a stream, kill Spark half-way, go on, compare
	@$(JAVA) $(BIN)/strandline demo $(ARGS)

# Once for an environment, a minute: hundreds of Spark's processes start sooner then. Tests do without it, too.
$(QUICK_SPARK): requirements.lock | setup
	@echo "Preparing a Spark for the tests (takes a minute, this once)" >&2
	@$(JAVA) $(BIN)/python -m tests.support.quick_spark || true

test: setup $(QUICK_SPARK) ## run the tests; ARGS="tests/unit -k block" picks some
	@$(JAVA) $(PYTEST) $(ARGS)

test-long: setup $(QUICK_SPARK) ## run those that take long: more simulations, more crashes (CI does)
	@$(JAVA) $(PYTEST) --run-long -m long $(ARGS)

test-all: setup $(QUICK_SPARK) ## run all tests: every crash with every operator and policy; takes hours
	@$(JAVA) $(PYTEST) --run-slow $(ARGS)

RUNS ?= 4
LOAD ?= 2
stress: setup $(QUICK_SPARK) ## run the tests of real processes RUNS=4 times, every second time beside LOAD=2 busy processes
	@$(JAVA) $(BIN)/python -m tests.support.stress --runs $(RUNS) --load $(LOAD) -- $(ARGS)

MINUTES ?= 5
simulate: setup ## run all simulations on new seeds for MINUTES=5; SEED=1 begins with that one
	@$(BIN)/python -m tests.simulation.simulate --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Hashes must not depend on the order of sets. FREEZE=--write records anew.
freeze-check: setup ## compare simulations, golden streams and public names with what was recorded
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.support.freeze $(FREEZE)

lint: setup ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: setup ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup ## mypy, strict
	@$(BIN)/mypy

layers: setup ## import-linter: imports point downwards only
	@$(BIN)/lint-imports --no-logo

check: lint types layers test ## lint, types, layers and tests

bench: setup ## run the benchmarks; SIZE=large, BENCHMARKS=persist
	@$(JAVA) set -e; for name in $(BENCHMARKS); do $(BIN)/strandline bench $$name --size $(SIZE) $(ARGS); done

# Away from .venv, so that nothing installed by hand gets in.
lock: setup ## resolve the dependencies anew and write requirements.lock
	@$(BIN)/python -m venv --clear .venv-lock
	@.venv-lock/bin/python -m pip install --disable-pip-version-check '.[dev]'
	@.venv-lock/bin/python -m pip freeze --exclude strandline > requirements.lock
	@rm -rf .venv-lock

clean: ## remove what was built, .venv included
	@rm -rf .venv .venv-lock dist build .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	@rm -rf spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
