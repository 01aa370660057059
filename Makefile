# make demo: everything that a first run needs, then that run.  make test: everything that the tests need, then the tests.

VENV := .venv
BIN := $(VENV)/bin
SOURCES := harness images agents graders scripts tests $(wildcard bench)
ENGINE := $(BIN)/python scripts/engine.py

# Fail when a test is skipped that this machine ought to run; empty: don't.
HARNESS_REQUIRE_ALL ?= 1
TESTS ?=

.NOTPARALLEL:
.PHONY: help demo test lint lint-format lint-style lint-types lint-directions check format dev base engine engine-stop clean
.DEFAULT_GOAL := help

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

demo: base ## set everything up, run an example and show its result
	$(BIN)/harness run examples/tasks/hello

test: dev base ## set everything up and run the tests (TESTS="tests/images -k name" for some of them)
	HARNESS_REQUIRE_ALL=$(HARNESS_REQUIRE_ALL) $(BIN)/python -m pytest $(if $(TESTS),$(TESTS),--cov)

lint: lint-format lint-style lint-types lint-directions ## formatting, style, types, import directions

lint-format: dev
	$(BIN)/ruff format --check $(SOURCES)
lint-style: dev
	$(BIN)/ruff check $(SOURCES)
lint-types: dev
	$(BIN)/pyright
lint-directions: dev
	$(BIN)/lint-imports --no-logo

check: lint test ## what CI does

format: dev ## format the code
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

base: $(VENV)/installed engine ## the images that tasks start from
	@$(BIN)/harness images base

engine: $(VENV)/installed ## a Docker engine: the one that answers, else (as root) a new one
	@$(ENGINE) start

engine-stop: ## end the engine that was started from here
	@python3 scripts/engine.py stop

dev: $(VENV)/installed-dev ## the environment with the tools for tests and checks

# The first alone is all that a demo needs; the second brings the first up to date as well.
$(VENV)/installed: pyproject.toml scripts/venv.sh
	@scripts/venv.sh
	@touch $@

$(VENV)/installed-dev: pyproject.toml scripts/venv.sh
	@scripts/venv.sh lint test
	@touch $(VENV)/installed $@

clean: ## remove what was made here (not the engine, not its images)
	rm -rf $(VENV) dist build .cache .coverage* .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
