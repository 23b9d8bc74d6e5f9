"""Canonical forms: equal for equivalent problems, and never in two parts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelgym.errors import ProblemError
from kernelgym.suites.synthetic import SyntheticSuite, canonical_form
from kernelgym.suites.synthetic.canonical import simplify
from kernelgym.suites.synthetic.operators import OPERATORS, apply
from kernelgym.suites.synthetic.source import spec_for
from kernelgym.suites.synthetic.spec import ElementStep, InputTensor, RowsStage, Spec
from kernelgym.types import Problem

X = np.linspace(-3.0, 3.0, 61).reshape(1, -1)
SECOND = {
    "full": np.cos(np.arange(61.0)).reshape(1, -1),
    "row": np.sin(np.arange(61.0)).reshape(1, -1),
    "col": np.array([[0.7]]),
}

consts = st.sampled_from([0.25, 0.5, 1.5, 2.0, -0.5, -2.0])
total_ops = sorted(name for name, op in OPERATORS.items() if op.floor < 0 and name != "exp")


@st.composite
def steps(draw: st.DrawFn) -> ElementStep:
    op = draw(st.sampled_from(total_ops))
    if OPERATORS[op].binary:
        spread = draw(st.sampled_from(["full", "row", "col"]))
        return ElementStep(op, (), f"{op}_{spread}", spread)
    if op == "clamp":
        return ElementStep(op, draw(st.sampled_from([(-1.0, 1.0), (0.0, 2.0), (-0.5, 0.25)])))
    if op == "leaky_relu":
        return ElementStep(op, (0.25,))
    return ElementStep(op, (draw(consts),) if OPERATORS[op].ranges else ())


chains = st.lists(steps(), max_size=6).map(tuple)


def run(chain: tuple[ElementStep, ...]) -> np.ndarray:
    value = X
    for step in chain:
        value = apply(step, value, SECOND.get(step.spread))
    return np.asarray(value)


def spec_with(chain: tuple[ElementStep, ...], level: int = 2, tail: str = "") -> Spec:
    stage = RowsStage("out", "x", ("rows", "cols"), chain, tail, 1)  # type: ignore[arg-type]
    inputs = (InputTensor("x", ("rows", "cols")),)
    return Spec(level, "chain", "chain", (("rows", 1), ("cols", 61)), inputs, (stage,))


def form(chain: tuple[ElementStep, ...], tail: str = "") -> str:
    return canonical_form(spec_with(chain, 2, tail))


@given(chains)
@settings(max_examples=400, deadline=None)
def test_simplifying_keeps_the_meaning(chain: tuple[ElementStep, ...]) -> None:
    with np.errstate(all="ignore"):
        before, after = run(chain), run(simplify(chain))
    good = np.isfinite(before) & (np.abs(before) < 1e12)
    np.testing.assert_allclose(after[good], before[good], rtol=1e-6, atol=1e-6)


@given(chains)
@settings(max_examples=200, deadline=None)
def test_simplifying_is_idempotent_and_never_lengthens_a_form(
    chain: tuple[ElementStep, ...],
) -> None:
    once = simplify(chain)
    assert simplify(once) == once


@given(chains, chains, consts, st.sampled_from([0.5, 2.0, 4.0]))
@settings(max_examples=200, deadline=None)
def test_equivalent_spellings_have_equal_form(
    head: tuple[ElementStep, ...], tail: tuple[ElementStep, ...], shift: float, scale: float
) -> None:
    # A constant has many spellings; the generator never makes one (see the degeneracy tests).
    with np.errstate(all="ignore"):
        assume(all(np.ptp(run((*head, *tail[:i]))) > 1e-6 for i in range(len(tail) + 1)))
        assume(all(np.ptp(run(head[:i])) > 1e-6 for i in range(len(head))))

    def scaled(factor: float) -> ElementStep:
        return ElementStep("scale", (factor,))

    relu, absolute, square = ElementStep("relu"), ElementStep("abs"), ElementStep("square")
    row, full = ElementStep("add", (), "b", "row"), ElementStep("add", (), "y", "full")
    more, less = ElementStep("mul", (), "g", "row"), ElementStep("mul", (), "z", "full")
    pairs: list[tuple[tuple[ElementStep, ...], tuple[ElementStep, ...]]] = [
        ((scaled(scale), scaled(2.0)), (scaled(2.0 * scale),)),
        (
            (ElementStep("shift", (shift,)), ElementStep("shift", (2.0,))),
            (ElementStep("shift", (shift + 2.0,)),),
        ),
        ((relu, relu), (relu,)),
        ((absolute, absolute), (absolute,)),
        ((absolute, relu), (absolute,)),
        ((square, relu), (square,)),
        ((ElementStep("sigmoid"), relu), (ElementStep("sigmoid"),)),
        ((relu, scaled(scale)), (scaled(scale), relu)),
        ((absolute, scaled(scale)), (scaled(scale), absolute)),
        ((ElementStep("neg"), ElementStep("neg")), ()),
        ((ElementStep("neg"), absolute), (absolute,)),
        ((ElementStep("neg"), square), (square,)),
        ((row, full), (full, row)),
        ((more, less), (less, more)),
        ((more, scaled(scale)), (scaled(scale), more)),
        ((row, ElementStep("shift", (shift,))), (ElementStep("shift", (shift,)), row)),
        ((relu, ElementStep("relu6")), (ElementStep("relu6"),)),
    ]
    for left, right in pairs:
        assert form((*head, *left)) == form((*head, *right)), (left, right)
        a, b = form((*left, *tail)), form((*right, *tail))
        assert a == b, (left, right)


@pytest.mark.parametrize(
    ("tail", "hidden"),
    [
        ("softmax", ElementStep("shift", (1.5,))),
        ("log_softmax", ElementStep("shift", (-1.5,))),
        ("layer_norm", ElementStep("scale", (2.0,))),
        ("layer_norm", ElementStep("shift", (2.0,))),
        ("rms_norm", ElementStep("scale", (2.0,))),
        ("unit_norm", ElementStep("scale", (0.5,))),
    ],
)
def test_a_step_that_the_tail_undoes_is_not_in_the_form(tail: str, hidden: ElementStep) -> None:
    head = (ElementStep("tanh"),)
    assert form((*head, hidden), tail) == form(head, tail)
    assert form((hidden, *head), tail) != form(head, tail)


def test_constants_do_not_tell_forms_apart_but_operators_do() -> None:
    assert form((ElementStep("scale", (1.5,)), ElementStep("tanh"))) == form(
        (ElementStep("scale", (2.5,)), ElementStep("tanh"))
    )
    distinct = [
        (ElementStep("tanh"),),
        (ElementStep("tanh"), ElementStep("sin")),
        (ElementStep("sin"), ElementStep("tanh")),
        (ElementStep("add", (), "y", "full"),),
        (ElementStep("add", (), "b", "row"),),
        (ElementStep("sub", (), "y", "full"),),
        (ElementStep("relu"),),
        (ElementStep("clamp", (-1.0, 1.0)),),
    ]
    assert len({form(chain) for chain in distinct}) == len(distinct)


def test_the_shape_class_tells_single_operators_apart() -> None:
    spec = spec_with((ElementStep("tanh"),), level=1)
    wide = dataclasses.replace(spec, sizes=(("rows", 1), ("cols", 997)))
    near = dataclasses.replace(spec, sizes=(("rows", 3), ("cols", 59)))
    assert canonical_form(spec) == canonical_form(near) != canonical_form(wide)
    fused = dataclasses.replace(spec, level=2)
    assert canonical_form(fused) == canonical_form(dataclasses.replace(wide, level=2))


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_no_form_occurs_in_two_parts(one: int, two: int) -> None:
    home: dict[str, str] = {}
    suites = (SyntheticSuite(one, "cpu", 20), SyntheticSuite(two, "gpu", 20))
    for chosen in suites:
        for level in chosen.levels:
            listed = {p.id: p for p in chosen.problems(level=level)}
            for split in chosen.splits:
                for problem in listed.values():
                    inside = problem.id in _ids(chosen, level, split)
                    if inside:
                        form = canonical_form(problem)
                        assert home.setdefault(form, split) == split


def _ids(chosen: SyntheticSuite, level: int, split: str) -> set[str]:
    try:
        return {p.id for p in chosen.problems(level=level, split=split)}
    except ProblemError:  # twenty problems may leave a part empty
        return set()


def test_generated_chains_hold_no_redundant_step() -> None:
    for index in range(1, 300):
        for stage in spec_for(0, "cpu", 2, index).stages:
            if isinstance(stage, RowsStage):
                assert len(simplify(stage.before)) >= len(stage.before)
                assert len(simplify(stage.after)) >= len(stage.after)


def test_a_foreign_problem_has_no_form() -> None:
    mine = SyntheticSuite().get("Synthetic/L1/1")
    for foreign in (
        Problem("KernelBench/L1/1", "KernelBench", 1, "1_X", mine.source),
        Problem(mine.id, "Synthetic", 1, mine.name, mine.source + "\n# edited\n"),
    ):
        with pytest.raises(ProblemError, match="not one that the Synthetic suite wrote"):
            canonical_form(foreign)
