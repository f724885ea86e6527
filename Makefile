# `make demo` and `make test` do all set-up: they need Python 3.10 or later and a C++ compiler.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install install-all cross-tools java demo test test-fast docs release-check gpu-bundle gpu-check lint style clean

help:  ## List the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

install: $(STAMP)  ## Make the environment in $(VENV), with everything that tests need.

define environment  # a folder, and the extra to install in it
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || { \
		echo "A C++ compiler is needed; on Debian or Ubuntu: apt-get install g++" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "Python 3.10 or later is needed; $$($(PYTHON) --version 2>&1) was found (set PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
		echo "Python's venv module is needed; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[$(2)]'
	@touch $(1)/.installed
endef

$(STAMP): setup.cfg pyproject.toml
	$(call environment,$(VENV),test)

# A plain `pip install torch` would bring gigabytes of CUDA libraries: its build for CPUs is asked for by name.
TORCH ?= torch==2.13.0+cpu
# Without them, tests of exported libraries and of code for aarch64 are skipped or fail, and so does continuous
# integration.
CROSS_PACKAGES := clang gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user llvm oclgrind \
	ocl-icd-libopencl1 pocl-opencl-icd
install-all: install cross-tools java  ## Add what optional parts and tests need: PyTorch's build for CPUs, engines of clusters, ...
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[optuna,mlflow,dask,ray,spark,models]' '$(TORCH)'

cross-tools:  ## Install clang, and what runs code for 64-bit Arm CPUs and checks and runs GPU kernels (as root on Debian or Ubuntu).
	@lacking=; for tool in clang++ aarch64-linux-gnu-gcc qemu-aarch64 llvm-objdump oclgrind-kernel; do \
		command -v $$tool >/dev/null || lacking="$$lacking $$tool"; done; \
	ls /etc/OpenCL/vendors/*.icd >/dev/null 2>&1 && $(PYTHON) -c 'import ctypes; ctypes.CDLL("libOpenCL.so.1")' 2>/dev/null || \
		lacking="$$lacking OpenCL"; \
	[ -z "$$lacking" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends $(CROSS_PACKAGES) && exit 0; \
	fi; \
	echo "missing:$$lacking, which tests of exported code and of GPU kernels need;" \
		"on Debian or Ubuntu: apt-get install $(CROSS_PACKAGES)" >&2

java:  ## Install what runs Spark (as root on Debian or Ubuntu).
	@command -v java >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless && exit 0; \
	fi; \
	echo "java is missing, which Spark needs; on Debian or Ubuntu: apt-get install default-jre-headless" >&2

# The environment for tests has all that the demo needs; without it, the demo makes a smaller one.
DEMO := $(if $(wildcard $(STAMP)),$(VENV),$(VENV)-demo)
demo: $(DEMO)/.installed  ## Train a real model, tune it, and compare speed and answers with its library.
	@$(DEMO)/bin/python -m benchmarks.demo

$(VENV)-demo/.installed: setup.cfg pyproject.toml
	@echo "Installing what the demo needs, a download of about 190 MB ..."
	$(call environment,$(VENV)-demo,demo)

test: style  ## Run all checks, and all tests that what is installed allows, two at a time.
	@# The type checker runs beside the tests. Two workers: a thread each for what fits and checks models, which
	@# otherwise wait for each other's.
	@types=$$(mktemp); $(BIN)/mypy > $$types 2>&1 & checker=$$!; \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile; tests=$$?; \
	wait $$checker; typed=$$?; cat $$types; rm -f $$types; exit $$(( tests || typed ))

test-fast: install  ## Run the quick tests (tests/fast.txt), which build next to no kernels.
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile $$(ls $$(cat tests/fast.txt) 2>/dev/null)

docs: install  ## Build the documentation as a site, in build/docs.
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

release-check: install  ## Build the sdist and the wheel, and install and use both outside the checkout.
	@$(BIN)/python -m benchmarks.release

gpu-bundle: install-all  ## Build build/gpu-bundle.tar here, to check and time kernels on a machine with an NVIDIA GPU.
	@mkdir -p build && OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.gpu.bundle --out build/gpu-bundle.tar

gpu-check: gpu-bundle  ## On a machine with an NVIDIA GPU: check all that runs on it, then compare speed (an hour or so).
	@$(BIN)/python -m hbtvm.gpucheck build/gpu-bundle.tar --out build/gpucheck
	@$(BIN)/python -m benchmarks.gpu

lint: style  ## Run the linter, the formatter's check and the type checker.
	$(BIN)/mypy

style: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:  ## Remove the environment and caches.
	rm -rf $(VENV) $(VENV)-demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
