"""Evaluators shared by the judge's tests: starting one costs seconds, asking it milliseconds."""

import dataclasses

import pytest

from kernelgym.judge import LocalEvaluator
from kernelgym.judge.reference.reference import Reference
from kernelgym.rulesets import RULESETS
from support.peers import PROBLEM, SEEDS, meeting
from support.programs import TIGHT


def _evaluator(name, cache_dir, front_end="", **options):
    # Many kernels of these tests hold no custom code; `asking` is for those that show that they do.
    rules = dataclasses.replace(RULESETS[name], limits=TIGHT, require_custom_kernel=False)
    interpreter = "gpu" if front_end else "plain"
    rules = dataclasses.replace(rules, front_end=front_end, interpreter=interpreter)
    return LocalEvaluator(ruleset=rules, cache_dir=cache_dir, **options)


@pytest.fixture(scope="session")
def strict(cache_dir):
    with _evaluator("strict", cache_dir, timing=False) as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def asking(cache_dir):
    limits = dataclasses.replace(TIGHT, run_s=30.0)  # torch's compiler is slow to import
    rules = dataclasses.replace(RULESETS["strict"], limits=limits)
    with LocalEvaluator(ruleset=rules, cache_dir=cache_dir, timing=False) as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def as_gpu(cache_dir):
    """Judges interpreted kernels by what a GPU compiles and computes."""
    with _evaluator("strict", cache_dir, timing=False, front_end="cuda:90") as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def timing(cache_dir):
    with _evaluator("strict", cache_dir) as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def kernelbench(cache_dir):
    with _evaluator("kernelbench", cache_dir, timing=False) as evaluator:
        yield evaluator


@pytest.fixture
def met(tmp_path):
    """A session, the made-up process it talks to, who keeps that process, and a reference."""
    with meeting(tmp_path) as (session, peer, keeper, rules):
        yield session, peer, keeper, Reference(PROBLEM, rules, SEEDS)
