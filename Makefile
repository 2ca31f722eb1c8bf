# Everything runs in .venv of this checkout, with quantify installed the way a user installs it.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help setup cbmc demo test lint bench clean
.DEFAULT_GOAL := help

VENV := .venv
TOOLS := .tools
DEMO := $(VENV)/demo
# Folders are listed too, so that a removed file counts as a change.
SOURCES := pyproject.toml hatch_build.py README.md LICENSE scripts/setup.sh \
	$(shell find quantify native templates ! -name '*.pyc' ! -name '*.so' ! -name __pycache__)

help:  ## Show this list
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 8

setup: $(VENV)/.installed  ## Build .venv with quantify in it

$(VENV)/.installed: $(SOURCES)
	scripts/setup.sh $(VENV)
	@touch $@

$(VENV)/.installed-dev: $(SOURCES)
	scripts/setup.sh $(VENV) dev
	@touch $(VENV)/.installed $@

cbmc: setup  ## Find CBMC, or unpack it into .tools (no root needed)
	$(VENV)/bin/python quantify/tools/fetch_cbmc.py $(TOOLS)

demo: setup cbmc  ## Count a property of a real model, two independent ways
	$(VENV)/bin/quantify doctor
	rm -rf $(DEMO)
	$(VENV)/bin/quantify init --example digits $(DEMO)
	$(VENV)/bin/quantify count $(DEMO)/model.pkl --property $(DEMO)/property.yaml --cross-check

test: $(VENV)/.installed-dev cbmc lint  ## Lint, then run every test; a missing tool is a failure
	$(VENV)/bin/pytest --require-tools -n 2 -q

lint: $(VENV)/.installed-dev  ## ruff, mypy --strict and the import contracts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(VENV)/.installed-dev cbmc  ## Run the benchmarks (resumable); tables go to benchmarks/results
	$(VENV)/bin/python benchmarks/run.py

clean:  ## Remove what make has built (.tools is kept)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f quantify/engines/_native.abi3.so
