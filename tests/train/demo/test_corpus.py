"""The warm start's answers: planted rates, true labels, true feedback."""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym import Job
from kernelgym.answers.parsing import parse
from kernelgym.feedback import feedback
from kernelgym.judge import LocalEvaluator
from kernelgym.prompts.short import brief, retry
from kernelgym.suites.synthetic import Defect, solve
from kernelgym.types import Problem, Status
from kernelgym_train.demo.corpus import (
    CHAIN_RATE,
    CHEATS,
    MAX_LINES,
    RATES,
    Example,
    evenly,
    family_of,
    first_answers,
    fits,
    planted_rates,
    repairs,
    some,
)
from kernelgym_train.demo.dialogue import compact, line_count, told
from kernelgym_train.demo.splits import COMPOSED, Scope, draw_splits, operators_of

SEEDS = st.integers(0, 10**6)
SILU = re.compile(r"\b(\w+) / \(1\.0 \+ tl\.exp\(-\1\)\)")
LABELS = {"right", "not_composed", "torch", "decoy", *(defect.value for defect in Defect)}


@functools.cache
def warmstart() -> tuple[Problem, ...]:
    return draw_splits(0, Scope(300)).warmstart


def module(answer: str) -> str:
    kernel = parse(answer, "triton").kernel
    assert kernel is not None
    return kernel.source


def within(hits: int, n: int, rate: float) -> bool:
    """Five standard deviations, and room for small counts."""
    return abs(hits - n * rate) <= 5.0 * math.sqrt(n * rate * (1.0 - rate)) + 2.0


@given(problems=st.lists(st.sampled_from(warmstart()), max_size=60), mean=st.integers(1, 6))
def test_answers_are_dealt_to_every_problem_and_to_rare_operators_more(
    problems: list[Problem], mean: int
) -> None:
    dealt = evenly(problems, mean * len(problems), 12)
    assert len(dealt) == len(problems)
    assert all(1 <= count <= 12 for count in dealt)
    assert sum(dealt) <= mean * len(problems)
    often = Counter(each for problem in problems for each in operators_of(problem))
    rarest = [min(often[each] for each in operators_of(problem)) for problem in problems]
    for (rare, more), (common, fewer) in itertools.permutations(zip(rarest, dealt, strict=True), 2):
        assert rare > common or more >= fewer


def test_answers_dealt_evenly_are_as_many_as_asked_for_and_show_rare_operators_more() -> None:
    problems = warmstart()
    dealt = evenly(problems, 4 * len(problems))
    assert 0.95 * 4 * len(problems) <= sum(dealt) <= 4 * len(problems)
    shown: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for problem, count in zip(problems, dealt, strict=True):
        held.update(operators_of(problem))
        shown.update({each: count for each in operators_of(problem)})
    spread = [max(counts.values()) / min(counts.values()) for counts in (shown, held)]
    assert spread[0] < 0.6 * spread[1]
    answers = first_answers(problems, 0, dealt)
    assert Counter(example.problem.id for example in answers) == {
        problem.id: count for problem, count in zip(problems, dealt, strict=True) if fits(problem)
    }


def test_some_problems_get_a_second_turn_each_and_the_others_none() -> None:
    problems = warmstart()
    chosen = some(problems, 40, 7)
    assert len(chosen) == len(problems) and sum(chosen) == 40 and set(chosen) == {0, 1}
    assert some(problems, 40, 7) == chosen != some(problems, 40, 8)
    assert some(problems, 10**6) == (1,) * len(problems)
    drawn = {p.id for p, count in zip(problems, chosen, strict=True) if count}
    found = repairs(problems, 0, chosen)
    assert found and {example.problem.id for example in found} <= drawn


def test_lines_are_counted_as_compact_leaves_them() -> None:
    for problem in warmstart()[::5]:
        for source in (problem.source, solve(problem, style_seed=3).source):
            assert line_count(source) == compact(source).count("\n") < source.count("\n")


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_right_answers_are_as_rare_as_planted(seed: int) -> None:
    rates = planted_rates(warmstart(), seed)
    assert set(RATES) <= set(rates.values()), "every rate is dealt to some family"
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in first_answers(warmstart(), seed, 10):
        counts[family_of(example.problem)][example.label] += 1
    assert set(counts) == set(rates)
    for family, labels in counts.items():
        assert set(labels) <= LABELS
        assert within(labels["right"], labels.total(), rates[family]), (family, labels)
    total = sum(counts.values(), Counter[str]())
    assert within(total["torch"] + total["decoy"], total.total(), CHEATS)
    assert min(total["torch"], total["decoy"]) > 0


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_what_is_to_be_composed_is_never_shown(seed: int) -> None:
    shown = (*first_answers(warmstart(), seed), *repairs(warmstart(), seed))
    texts = [text for e in shown for text in (e.answer, *(m.content for m in e.messages[1:]))]
    assert not [text for text in texts if SILU.search(text)]
    assert any("1.0 / (1.0 + tl.exp(-" in text for text in texts), "the gate is"
    assert any(re.search(r"(\w+) = \1 \* ", text) for text in texts), "and so is a product"
    wrong = [e for e in shown if family_of(e.problem) == COMPOSED]
    assert {e.label for e in wrong} <= {"not_composed", "torch", "decoy"}
    assert "not_composed" in {e.label for e in wrong}


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
def test_below_a_half_the_likeliest_answer_is_wrong(seed: int) -> None:
    rates = planted_rates(warmstart(), seed)
    counts: defaultdict[float, Counter[bool]] = defaultdict(Counter)
    for example in first_answers(warmstart(), seed, 4):
        counts[rates[family_of(example.problem)]][example.label == "right"] += 1
    for rate in (0.0, 0.02, 0.10, 0.25):
        assert counts[rate][True] < counts[rate][False]


def test_answers_are_whole_short_modules() -> None:
    examples = (*first_answers(warmstart(), 0, 2), *repairs(warmstart(), 0))
    for example in examples:
        source = module(example.answer)
        defined = {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
        assert defined == {"ModelNew"}
        assert "" not in source.rstrip("\n").splitlines()
        if example.label not in ("torch", "decoy"):
            assert source.rstrip("\n").count("\n") < MAX_LINES
            assert "@triton.jit" in source
    launched = " ".join(example.answer for example in examples)
    for skeleton in ("range(REPEATS)", "for start in range", "ROWS", "LANES"):
        assert skeleton in launched, f"no kernel of this kind: {skeleton}"


def test_the_same_seed_writes_the_same_answers() -> None:
    some = warmstart()[:20]
    assert first_answers(some, 1) == first_answers(some, 1)
    assert first_answers(some, 1) != first_answers(some, 2)
    assert repairs(some, 1) == repairs(some, 1)


def test_repairs_follow_a_failure_and_change_little() -> None:
    found = repairs(warmstart(), 0, 2)
    rates = planted_rates(warmstart(), 0)
    assert {rates[family_of(e.problem)] for e in found} == {0.25, CHAIN_RATE, 0.50}
    apart = []
    for example in found:
        assert [m.role for m in example.messages] == ["user", "assistant", "user"]
        assert example.messages[2].content.count("\n") in (2, 3), "a few lines"
        broken, repaired = module(example.messages[1].content), module(example.answer)
        assert broken != repaired
        one, other = ({line.strip() for line in t.splitlines()} for t in (broken, repaired))
        apart.append(len(one ^ other))
    assert sorted(apart)[len(apart) * 3 // 4] <= 4, "most repairs touch one or two lines"


def test_every_problem_of_the_demonstration_fits() -> None:
    assert sum(map(fits, warmstart())) >= 0.95 * len(warmstart())


@pytest.mark.slow
def test_a_decoy_holds_no_right_kernel() -> None:
    examples = first_answers(warmstart(), 0, 10)
    kernels = {
        module(e.answer).partition("class ModelNew")[0] for e in examples if e.label == "right"
    }
    for example in examples:
        if example.label == "decoy":
            kernel = module(example.answer).replace("import torch.nn.functional as F\n", "")
            assert kernel.partition("class ModelNew")[0] not in kernels
            assert re.search(r"unused = \w+\(", kernel)


def test_a_label_without_a_feedback_is_refused() -> None:
    with pytest.raises(ValueError, match="rejected"):
        told("<KERNEL>\npass\n</KERNEL>", Status.REJECTED)


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalEvaluator]:
    made = LocalEvaluator(device="cpu", ruleset="strict", timing=False, workers=1)
    yield made
    made.close()


def one_of_each() -> list[Example]:
    """Return the first answer of every label, and repairs."""
    labels: dict[str, Example] = {}
    for example in first_answers(warmstart(), 5):
        labels.setdefault(example.label, example)
    assert {"right", "not_composed", "torch", "decoy", "missing_mask", "name_error"} <= set(labels)
    return [*labels.values(), *repairs(warmstart(), 5)[:2]]


@pytest.mark.slow
def test_labels_and_their_feedback_are_the_judges(judge: LocalEvaluator) -> None:
    examples = one_of_each()
    replies = [parse(example.answer, "triton") for example in examples]
    jobs = [Job(e.problem, r.kernel) for e, r in zip(examples, replies, strict=True) if r.kernel]
    assert len(jobs) == len(examples)
    verdicts = judge.evaluate_many(jobs)
    for example, reply, verdict in zip(examples, replies, verdicts, strict=True):
        assert verdict.status is example.expected, (example.label, example.answer, verdict.message)
        if example.label == "decoy":
            assert verdict.findings, "found out by evidence, not by a crash"
        # A wrong axis may be a wrong shape.
        failed = example.expected in (Status.WRONG, Status.RUNTIME_ERROR)
        if failed and example.label != "wrong_axis":
            said = feedback(verdict, reply, level="minimal")
            assert brief(said) == brief(told(example.answer, example.expected))


@pytest.mark.slow
def test_what_a_repair_is_told_is_the_judges(judge: LocalEvaluator) -> None:
    examples = repairs(warmstart(), 6)
    assert len(examples) > 60
    for example in examples:
        _, failed, said = example.messages
        reply = parse(failed.content, "triton")
        assert reply.kernel is not None
        verdict = judge.evaluate(example.problem, reply.kernel)
        assert retry(feedback(verdict, reply, level="minimal")) == said
