# Everything a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# pdoc shows what __all__ names, and kernelgym's names no modules.
DOCUMENTED := types verdict returns devices errors rulesets tokens baseline reference_time hygiene precision judging_memory paths hub prices machine languages \
	answers.parsing answers.screening prompts.problem prompts.hardware prompts.context prompts.parts prompts.observer prompts.short prompts.kinds prompts.kernelbench feedback \
	feedback.categories rewards suites suites.base suites.kernelbench suites.facts suites.small_sizes suites.directory suites.spec suites.spec_suite suites.spec_checks suites.spec_files suites.arithmetic \
	suites.synthetic suites.known_hygiene suites.known_memory testing testing.samples redteam.corpus redteam.files retrieval.entry retrieval.operators \
	retrieval.embedding retrieval.exclusion retrieval.index retrieval.cover retrieval.synthetic retrieval.search retrieval.folder retrieval.models retrieval.text_model retrieval.repairs retrieval.archive retrieval.part episodes.episode \
	episodes.playing episodes.stopping records.trajectories records.jsonlines records.observer_settings records.rescore \
	records.export judge judge.environment judge.provenance evaluators.awaited evaluators.cached evaluators.duel indexing.corpora indexing.archives indexing.played indexing.growing indexing.build \
	indexing.judging indexing.copies indexing.coverage envs.kernel_env envs.vector envs.wrappers \
	envs.recording envs.spaces envs.infos envs.problem_choice envs.drivers benchmark.times_file \
	benchmark.kernelbench benchmark.run.plan benchmark.run.folder benchmark.run.generations benchmark.run.policies \
	benchmark.run.evaluate benchmark.run.task benchmark.run.driver benchmark.run.remote benchmark.run.spending benchmark.run.forecast \
	benchmark.numbers.intervals benchmark.numbers.outcomes benchmark.numbers.rates \
	benchmark.numbers.speeds benchmark.numbers.roofline benchmark.numbers.paired benchmark.numbers.taxonomy benchmark.numbers.costs \
	benchmark.folders benchmark.claims benchmark.scorecard benchmark.comparison benchmark.baseline_files benchmark.device_rates \
	benchmark.reporting benchmark.winners benchmark.interchange.layout benchmark.interchange.importing \
	benchmark.interchange.exporting benchmark.interchange.hub benchmark.pages.drawing benchmark.pages.charts benchmark.pages.style benchmark.pages.report
TRAINING := types models rollout.play rollout.policies rollout.sampling rollout.refill rollout.evaluation \
	rollout.device_share rollout.timed rollout.records rollout.verdict_log rollout.eval_policy credit.estimators credit.credit metrics.step_metrics metrics.retrieval_metrics metrics.guards metrics.filters \
	config.config config.sections config.settings run.steps run.runlog run.training run.watchers run.interrupts launch.launch \
	launch.assembly launch.prompts launch.memory launch.footprint backends.backend demo.splits demo.dialogue demo.corpus demo.tokenizer \
	demo.model demo.folders demo.warmstart demo.scores demo.heldout demo.settings demo.learning demo.results \
	demo.report demo.plan demo.stages demo.arms demo.demonstration \
	mcgs.search mcgs.session mcgs.launch_choices mcgs.tactics mcgs.folders mcgs.sharing mcgs.settings mcgs.budget mcgs.task mcgs.shapes mcgs.examples mcgs.variant mcgs.kernel_file mcgs.proposing mcgs.static_priors mcgs.texts mcgs.knobs mcgs.graph mcgs.selection mcgs.populations mcgs.tuning mcgs.algorithms \
	mcgs.progress mcgs.state mcgs.events mcgs.building mcgs.together mcgs.controller mcgs.starting mcgs.minimising mcgs.finishing mcgs.episode \
	mcgs.live mcgs.story mcgs.report mcgs.files mcgs.moves.definition mcgs.moves.table

.PHONY: help setup demo test test-all test-report tinker-server test-tinker test-tinker-all test-cookbook redteam lint bench docs clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(STAMP)  ## Make .venv and install kernelgym with its development tools

# The stamp is newer than what decides the installation, so a second `make setup` does nothing.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup  ## Watch a small model learn to write kernels from verdicts (about eight minutes, two cores)
	@$(BIN)/python -m kernelgym_train.demo

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

# tinker-cookbook wants an older transformers than trl does, so it has an environment of its own.
COOKBOOK_VENV := .venv-cookbook
COOKBOOK_STAMP := $(COOKBOOK_VENV)/.installed

$(COOKBOOK_STAMP): pyproject.toml
	$(PYTHON) -m venv $(COOKBOOK_VENV)
	$(COOKBOOK_VENV)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 tinker==0.38.0 \
		pytest hypothesis -e ".[tinker-cookbook]"
	@touch $@

test-cookbook: setup $(TINKER_STAMP) $(COOKBOOK_STAMP)  ## Run tinker-cookbook's trainer on our episodes and that server
	@$(BIN)/python -m kernelgym_train.demo --prepare --name prepared
	$(COOKBOOK_VENV)/bin/pytest --hypothesis-profile=ci tests/train/adapters

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

docs: setup  ## Write the API reference to build/docs
	$(BIN)/pdoc --docformat google --output-directory build/docs kernelgym $(DOCUMENTED:%=kernelgym.%) \
		kernelgym_train $(TRAINING:%=kernelgym_train.%)

clean:  ## Remove what the targets above made
	rm -rf $(VENV) $(TINKER_VENV) $(COOKBOOK_VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
