# Everything starts here: each target makes the environment that it needs. Works with plain Python 3.11 or newer.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
# What is downloaded is kept for the next clone, beside the servers' jars.
CACHE := $${STREAMS_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/distributary}
DEMO ?=
BENCH ?=
JSON ?=

.PHONY: help install demo test lint bench-stack bench-relay bench-slot bench-runtime bench-failures bench-analytics \
	bench-replay bench-rescore

help:
	@grep -E '^[a-z-]+:.*#' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*# /	/' | expand -t 16

install: $(INSTALLED)  # Make the environment in .venv

# Only when what is to be installed changed; a failed installation is begun again.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: Python 3.11 or newer is needed, and this is %d.%d: make PYTHON=python3.12 …" % sys.version_info[:2])'
	@echo "Installing into .venv, for a minute or some more (0.7 GB)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --cache-dir "$(CACHE)/pip" \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: install  # Start everything and watch: make demo DEMO="--exit --json numbers.json"
	@$(BIN)/streams demo $(DEMO)

# Where a broker that offers no more than Redpanda does could make a difference.
PARITY := $(addprefix tests/integration/test_,foreign_commits.py relay.py runtime_offsets.py runtime_rebalance.py)

test: lint  # Check, and run the tests on stacks of their own; some once more on a broker like Redpanda
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile
	@STREAMS_BROKER_PROFILE=parity $(BIN)/python -m pytest $(PARITY)

lint: install  # Style, types and the direction of imports
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench-stack: install  # Start time, memory and idle load of the local stack
	@$(BIN)/python -m bench.stack $(BENCH)

bench-relay: install  # Latency and rate from commit to consumer
	@$(BIN)/python -m bench.relay $(BENCH)

bench-slot: install  # What the slot holds back while the outbox is idle and another table is written to
	@$(BIN)/python -m bench.slot $(BENCH)

bench-runtime: install .venv-bench/installed  # The runtime against a plain loop, Quix Streams, bare tasks and a bare sink
	@$(BIN)/python -m bench.runtime $(BENCH) $(if $(JSON),--json "$(JSON)")

# Quix Streams pins what we do not, so it has an environment of its own.
.venv-bench/installed: bench/constraints-quix.txt
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --cache-dir "$(CACHE)/pip" \
		--constraint bench/constraints-quix.txt quixstreams
	@touch $@

bench-failures: install  # An outage, and a key that fails, beside what does not
	@$(BIN)/python -m bench.failures $(BENCH)

bench-analytics: install  # Reading 200,000 documents from the log, and recovering them from the changelog
	@$(BIN)/python -m bench.analytics $(BENCH)

bench-replay: install  # What a replay costs the live reader beside it
	@$(BIN)/python -m bench.replay $(BENCH)

bench-rescore: install  # A re-score of 100,000 documents, 50 of them malformed, with workers that are killed
	@$(BIN)/python -m bench.rescore $(BENCH)
