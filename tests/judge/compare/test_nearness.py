"""Outputs of timed calls beside the reference's own: near, or to be looked at again."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.compare.compare import Calibration, compare, near, surroundings
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.rulesets import RULESETS, ErrorFactors

STRICT, LOOSE = RULESETS["strict"], RULESETS["kernelbench"]


def call(seed, size=3000):
    """A reference's output and its twin's, for some inputs."""
    source = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, size, 8, generator=source)
    return (a * b).sum(1), (a.double() * b.double()).sum(1)


def around(seed=0, rules=STRICT):
    output, precise = call(seed)
    return surroundings(output, precise, rules, Calibration(ErrorFactors(8.0, 8.0)))


@given(st.integers(1, 1000))
def test_another_calls_reference_is_near_itself_and_so_is_its_truth(seed):
    output, precise = call(seed)
    said = describe_shape_of(output)
    for rules in (STRICT, LOOSE):
        assert near(said, [output.clone()], [output], around(rules=rules), rules)
        assert near(said, [precise.float()], [output], around(rules=rules), rules)


@given(st.integers(1, 1000), st.integers(0, 2999), st.sampled_from([0.01, 1.0, float("nan")]))
def test_what_is_near_would_pass_the_whole_comparison(seed, place, off):
    output, precise = call(seed)
    wrong = output.clone()
    wrong[place] += off
    said = describe_shape_of(output)
    for rules in (STRICT, LOOSE):
        assert not near(said, [wrong], [output], around(rules=rules), rules)
        assert not compare(
            said, [wrong], output, precise, rules, Calibration(ErrorFactors(8.0, 8.0))
        ).passed


def test_the_structure_counts_as_everywhere():
    output, _ = call(1)
    for said in (
        {"tensor": ["float32", [3000, 1], {"strides": [1, 1]}]},
        {"tensor": ["float64", [3000], {"strides": [1]}]},
        {"sequence": [describe_shape_of(output)]},
        {"other": "a Tensor in disguise"},
        "fits",
        None,
    ):
        assert not near(said, [output], [output], around(), STRICT)


def test_outputs_missing_or_of_another_shape_are_not_near():
    output, _ = call(1)
    said = describe_shape_of(output)
    assert not near(said, [], [output], around(), STRICT)
    assert not near(said, [output], [], around(), STRICT)
    assert not near(said, [output[:-1]], [output], around(), STRICT)
    assert not near(said, [output.double()], [output], around(), STRICT)


def test_without_a_twin_or_with_integers_nothing_is_known():
    output, precise = call(0)
    assert surroundings(output, None, STRICT, None) is None
    assert surroundings(output, -precise, STRICT, None) is None
    assert surroundings(torch.arange(4), None, LOOSE, None) is None
    assert surroundings([], None, LOOSE, None) is None
    assert surroundings(output, None, LOOSE, None) is not None
