# Each target sets up what it needs. Everything lives in .venv and build/; `make clean` removes both.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find csrc -type f) CMakeLists.txt pyproject.toml constraints.txt

DATA ?= ../shared/data

.PHONY: help reproduce demo test test-slow lint format build bench experiments stubs clean

help:
	@echo "make demo        a real GRPO job of verl on the CPU with RLVR and with RLCR (ARGS=--quick for a short one)"
	@echo "make test        all quick tests          make test-slow   the tests that take minutes"
	@echo "make lint        ruff, pyright, clang-format               make format      rewrite the files as lint wants them"
	@echo "make reproduce   published numbers beside ours, from the data in DATA (default ../shared/data)"
	@echo "make bench       all benchmarks, as ratios against peers"
	@echo "make experiments toy experiments: what each reward teaches (ARGS='t1 t3' for some of them)"

$(VENV)/.python: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -c constraints.txt "torch==2.13.0"
	$(BIN)/python -m pip install -q -c constraints.txt "scikit-build-core>=0.10" "pybind11>=2.13" "cmake>=3.24" ninja
	touch $@

# Editable: the Python files are used where they stand, the native modules are rebuilt when a source of theirs changed.
$(VENV)/.installed: $(VENV)/.python $(NATIVE)
	REWARDKIT_EMULATOR=ON $(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e ".[dev]"
	touch $@

build: $(VENV)/.installed

demo: build
	$(BIN)/python -m examples.demo $(ARGS)

test: build
	$(BIN)/python -m pytest -q

test-slow: build
	$(BIN)/python -m pytest -q -m "slow and not gpu"

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	find csrc -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | xargs $(BIN)/clang-format --dry-run -Werror

format: build
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find csrc -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | xargs $(BIN)/clang-format -i

bench: build
	$(BIN)/python -m pytest benchmarks -q -p no:cacheprovider --benchmark-only

experiments: build
	$(BIN)/python -m experiments $(ARGS)

reproduce: build
	$(BIN)/python -m rewardkit reproduce --data $(DATA)

clean:
	rm -rf $(VENV) build
