# `make demo` and `make test` do all set-up: they need Python 3.10 or later and a C++ compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install install-all demo test gpu-check lint clean

help:  ## List the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## Make the environment in $(VENV), with everything that tests need.

$(STAMP): setup.cfg pyproject.toml
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || { \
		echo "A C++ compiler is needed; on Debian or Ubuntu: apt-get install g++" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "Python 3.10 or later is needed; $$($(PYTHON) --version 2>&1) was found (set PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
		echo "Python's venv module is needed; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

# A plain `pip install torch` would bring gigabytes of CUDA libraries: its build for CPUs is asked for by name.
TORCH ?= torch==2.13.0+cpu
install-all: install  ## Add what optional parts need: Optuna, and PyTorch's build for CPUs.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[optuna]' '$(TORCH)'

demo: install  ## Train a real model, tune it, and compare speed and answers with its library.
	@$(BIN)/python -m benchmarks.demo

test: lint  ## Run all checks, and all tests that what is installed allows, two at a time.
	$(BIN)/python -m pytest -n 2 --dist loadfile

gpu-check: install  ## On a machine with an NVIDIA GPU: check all that runs on it, then compare speed (an hour or so).
	@$(BIN)/python -m benchmarks.gpu.check
	@$(BIN)/python -m benchmarks.gpu

lint: install  ## Run the linter, the formatter's check and the type checker.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## Remove the environment and caches.
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
