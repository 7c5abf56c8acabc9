# Everything starts here: each target makes the environment that it needs. Works with plain Python 3.11 or newer.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
# What is downloaded is kept for the next clone, beside the servers' jars.
CACHE := $${STREAMS_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/distributary}
DEMO ?=
BENCH ?=

.PHONY: help install demo test test-all lint bench-stack bench-relay

help:
	@grep -E '^[a-z-]+:.*#' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*# /	/' | expand -t 16

install: $(INSTALLED)  # Make the environment in .venv

# Only when what is to be installed changed; a failed installation is begun again.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: Python 3.11 or newer is needed, and this is %d.%d: make PYTHON=python3.12 …" % sys.version_info[:2])'
	@echo "Installing into .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --cache-dir "$(CACHE)/pip" \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: install  # Start everything and watch: make demo DEMO="--exit --json numbers.json"
	@$(BIN)/streams demo $(DEMO)

# What kills and restarts whole servers stands apart: it takes minutes, and a machine that does nothing else.
QUICK := tests/unit tests/property tests/docs/test_names.py tests/conformance \
	$(addprefix tests/integration/test_,foreign_commits.py lag.py readers_postgres.py replay.py runtime_frozen.py \
	runtime_offsets.py runtime_poison.py runtime_rebalance.py runtime_retry.py sink.py)

test: lint  # Check, and run the tests on a stack of their own
	@$(BIN)/python -m pytest $(QUICK)

test-all: lint  # The same with all that kills servers, starts from nothing, and runs the documentation
	@$(BIN)/python -m pytest

lint: install  # Style, types and the direction of imports
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench-stack: install  # Start time, memory and idle load of the local stack
	@$(BIN)/python -m bench.stack $(BENCH)

bench-relay: install  # Latency and rate from commit to consumer
	@$(BIN)/python -m bench.relay $(BENCH)
