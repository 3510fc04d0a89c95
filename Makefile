# What a developer types; `make setup` once, then `make demo`, `make test`, `make bench`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
export PATH := $(HOME)/.cargo/bin:$(PATH)

# The distribution's interpreter first: it is built with profiles and runs logins a third faster than one built plainly.
PYTHON ?= $(firstword $(foreach p,/usr/bin/python3 python3 python3.13 python3.12 python3.11,$(shell $(p) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
ENGINE_SOURCES := $(shell find native -path native/target -prune -o -type f \( -name '*.rs' -o -name '*.toml' -o -name 'Cargo.lock' -o -name '*.pyi' \) -print 2>/dev/null)
CARGO := cd native && cargo
# Cargo's test programs link and load the interpreter's library, which may stand outside the system's folders.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
LIBRARY_PATH_OF_PYTHON = LD_LIBRARY_PATH="$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')"
# Tests run on this many processes; PYTEST_ARGS picks some of them.
PYTEST_JOBS ?= 3
PYTEST_ARGS ?=
BENCH_ARGS ?=
DEMO_ARGS ?=
FUZZ_SECONDS ?= 60

.PHONY: help setup demo test check check-python check-rust format spec bench soak siege fuzz clean

help:
	@echo "make setup   a virtual environment in .venv with everything, and the native engine in release mode"
	@echo "make demo    PostgreSQL, the pooler in front of it and a short comparison (DEMO_ARGS=--keep stays)"
	@echo "make test    everything that must hold: style, types, lints, unit and end-to-end tests on all engines"
	@echo "make check   the static part of it"
	@echo "make spec    what an operator relies on and no test shows: settings, commands, columns, texts (SPEC_ARGS=--all)"
	@echo "make bench   ratios against PgBouncer in the same run, with our bounds (BENCH_ARGS='--quick --only simple-16')"
	@echo "make soak    many misbehaving clients for minutes on each engine (SOAK_ARGS='--seconds 3600 --chaos')"
	@echo "make siege   a fleet's budget under siege: workers killed every second (SIEGE_ARGS='--seconds 600 --engines uring')"
	@echo "make fuzz    each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)"

setup: $(VENV)/.installed $(VENV)/.engine

$(VENV)/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer with venv and ensurepip is needed; set PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

$(VENV)/.engine: $(ENGINE_SOURCES) | $(VENV)/.installed
	@command -v cargo >/dev/null || { echo "cargo is needed to build the native engine: see CONTRIBUTING.md" >&2; exit 1; }
	VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin develop --release --quiet --manifest-path native/Cargo.toml
	$(BIN)/python -c 'import pgshoal_engine'
	touch $@

demo: setup
	$(BIN)/pgshoal demo $(DEMO_ARGS)

check: setup check-python check-rust

check-python:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check-rust:
	$(CARGO) fmt --check
	$(CARGO) clippy --quiet --all-targets -- -D warnings

test: check
	@export $(LIBRARY_PATH_OF_PYTHON); $(CARGO) --version; \
	if command -v cargo-nextest >/dev/null; then cargo nextest run --no-tests=pass --status-level=fail; else cargo test --quiet; fi
	$(BIN)/python -m pytest -q -n $(PYTEST_JOBS) --dist=worksteal $(PYTEST_ARGS)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(CARGO) fmt

bench: setup
	$(BIN)/pgshoal bench compare --warmup 1 --cooldown 0.5 $(BENCH_ARGS)

soak: setup
	$(BIN)/python -m tests.soak $(SOAK_ARGS)

spec: setup
	$(BIN)/python -m tests.spec $(SPEC_ARGS)

siege: setup
	$(BIN)/python -m tests.soak_fleet $(SIEGE_ARGS)

# A stable compiler will do: RUSTC_BOOTSTRAP lets it take the sanitizer flags that cargo-fuzz sets.
fuzz: setup
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet cargo-fuzz
	for target in $$(cargo fuzz list --fuzz-dir fuzz); do \
	  RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir fuzz "$$target" -- \
	    -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 || exit 1; done

clean:
	rm -rf $(VENV) native/target .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-results bench-results
