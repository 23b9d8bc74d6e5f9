"""`RuleProposer`: knobs, structures and spaces of variants."""

from __future__ import annotations

import pytest

from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.knobs import ABSENT
from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.variant import MoveStep, Variant, read_variant, state_key

START = read_variant(EXAMPLES["matmul"][1])
RULES = RuleProposer(START)
TILE = "register_block/matrix_product/i"


def made(*steps: MoveStep) -> Variant:
    found = RULES.replay(steps)
    assert found is not None
    return found[0]


def tile(choice: str) -> MoveStep:
    return MoveStep("register_block", "matrix_product/i", choice)


def flags(target: str, choice: str) -> MoveStep:
    return MoveStep("compiler_flags", target, choice)


def test_knobs_change_no_structure() -> None:
    one = made(tile("4 x 2 x 8"), flags("level", "-O3"))
    other = made(tile("6 x 2 x 8"), flags("unrolling", "-funroll-loops"))
    assert RULES.structure(one) == RULES.structure(other) != RULES.structure(START)


def test_space_of_a_structure_has_its_tiles_and_flags() -> None:
    knobs = {knob.name: knob.choices for knob in RULES.space(made(tile("4 x 2 x 8"))).knobs}
    assert len(knobs[TILE]) == 7 and ABSENT not in knobs[TILE]
    assert knobs["compiler_flags/level"][0] == ABSENT
    assert TILE not in {knob.name for knob in RULES.space(START).knobs}


def test_space_of_all_has_structure_as_choices() -> None:
    knobs = {knob.name: knob.choices for knob in RULES.space(None).knobs}
    assert knobs[TILE][0] == ABSENT and "loop_order/matrix_product/i" in knobs


@pytest.mark.parametrize("whole", [False, True])
def test_values_and_tuned_are_inverse(whole: bool) -> None:
    variant = made(tile("4 x 2 x 8"), flags("level", "-O3"))
    space = RULES.space(None if whole else variant)
    values = RULES.values(space, variant)
    assert values is not None and values[TILE] == "4 x 2 x 8"
    again = RULES.tuned(space, values)
    assert again is not None and state_key(again.variant) == state_key(variant)
    changed = RULES.tuned(space, {**values, TILE: "6 x 2 x 8"})
    assert changed is not None and tile("6 x 2 x 8") in changed.variant.applied
    assert flags("level", "-O3") in changed.variant.applied


def test_other_structures_are_not_of_the_space() -> None:
    space = RULES.space(made(tile("4 x 2 x 8")))
    assert RULES.values(space, START) is None
    parallel = MoveStep("parallelise", "matrix_product/i", "parallel for")
    assert RULES.values(space, made(tile("4 x 2 x 8"), parallel)) is None


def test_impossible_settings_are_none() -> None:
    space = RULES.space(None)
    values = {knob.name: ABSENT for knob in space.knobs}
    swapped = {**values, TILE: "4 x 2 x 8", "unroll/innermost": "8 times"}
    assert RULES.tuned(space, swapped) is None, "no loop without a directive is left to unroll"


def test_approximate_choices_need_leave() -> None:
    start = read_variant(EXAMPLES["softmax"][1])
    for allowed in (False, True):
        rules = RuleProposer(start, approximate=allowed)
        names = {knob.name for knob in rules.space(start).knobs}
        assert ("fast_math/math" in names) == allowed
