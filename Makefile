# Everything a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test test-all test-report tinker-server test-tinker test-tinker-all test-cookbook test-adapters test-languages redteam lint bench docs clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(STAMP)  ## Make .venv and install kernelgym with its development tools

# The stamp is newer than what decides the installation, so a second `make setup` does nothing.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup  ## Play an episode and a cheat, then watch a small model learn from verdicts (about seven minutes, two cores)
	@$(BIN)/python -m kernelgym_train.demo

# Where Python is told to write no bytecode, pytest rewrites 500 test files in each run of each worker
# (20 CPU seconds), and every process of the judge compiles its modules.
test: export PYTHONDONTWRITEBYTECODE =
test: setup  ## Run the tests that need no GPU and no patience
	$(BIN)/pytest --hypothesis-profile=ci -m "not slow and not gpu and not tinker and not cookbook and not browser" -n 2 --dist loadfile

test-all: setup  ## Run every test that needs no GPU, the red team's whole corpus among them
	$(BIN)/pytest --hypothesis-profile=random -m "not gpu and not tinker and not cookbook and not browser"

# A third party's Tinker server on the CPU, in an environment of its own (2.2 GB): it needs other
# versions than the trainer, asks for Python 3.12 and runs on 3.11.
TINKER_VENV := .venv-tinker
TINKER_STAMP := $(TINKER_VENV)/.installed
MODEL ?= runs/demo/start
PORT ?= 8004
# Named, since looking through all tests for these takes over a minute.
TINKER_TESTS := tests/train/backends/tinker

$(TINKER_STAMP): tests/tinker_server/requirements.txt
	$(PYTHON) -m venv $(TINKER_VENV)
	$(TINKER_VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/tinker_server/requirements.txt
	$(TINKER_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps \
		--ignore-requires-python skyrl==0.4.0
	@touch $@

tinker-server: $(TINKER_STAMP)  ## Serve a model's folder to the Tinker backend on loopback (MODEL=, PORT=)
	@$(TINKER_VENV)/bin/python tests/tinker_server/server.py --model $(MODEL) --port $(PORT) --folder runs/tinker-server

test-tinker: setup $(TINKER_STAMP)  ## Train through the Tinker backend on that server, and resume after a kill
	@$(BIN)/python -m kernelgym_train.demo --prepare --name prepared
	$(BIN)/pytest --hypothesis-profile=ci -m "tinker and not slow" $(TINKER_TESTS)

test-tinker-all: setup $(TINKER_STAMP)  ## The same, and kills of the server, one step off, longer runs
	@$(BIN)/python -m kernelgym_train.demo --prepare --name prepared
	$(BIN)/pytest --hypothesis-profile=ci -m tinker $(TINKER_TESTS)

test-cookbook: setup $(TINKER_STAMP)  ## Run tinker-cookbook's trainer on our episodes and that server
	@$(BIN)/python -m kernelgym_train.demo --prepare --name prepared
	$(PYTHON) tests/adapters/environments.py tinker-cookbook
	.venv-adapters/tinker-cookbook/bin/python -m pytest --hypothesis-profile=ci tests/train/adapters

# Frameworks exclude each other's versions: each has an environment in .venv-adapters.
test-adapters:  ## Play episodes by other frameworks' own programs (FRAMEWORKS="inspect openenv" for some)
	$(PYTHON) tests/adapters/environments.py $(FRAMEWORKS)

test-languages: setup  ## Compile kernels of languages with packages of their own, which it installs (400 MB)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[languages]"
	$(BIN)/pytest --hypothesis-profile=ci -m "not gpu" tests/languages

test-report: setup  ## Use a report's page in a headless Chromium (on the PATH, or named by CHROMIUM=)
	$(BIN)/pytest --hypothesis-profile=ci -m browser

redteam: setup  ## Judge one exploit and one honest look-alike of each style: none may pass, none be refused
	$(BIN)/kernelgym redteam --sample --workers 2

lint: setup  ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup  ## Measure overhead and throughput on this machine
	$(BIN)/python -m benchmarks.env.env_overhead --out benchmarks/results/env_overhead.json
	$(BIN)/python -m benchmarks.judge.judge_cpu --out benchmarks/results/judge_cpu.json

# Only this target needs them, so `make setup` leaves them out.
DOCS_STAMP := $(VENV)/.docs

$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

docs: $(DOCS_STAMP)  ## Build docs/ and the API reference into build/docs; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build

clean:  ## Remove what the targets above made
	rm -rf $(VENV) $(TINKER_VENV) .venv-adapters build .pytest_cache .mypy_cache .ruff_cache .hypothesis
