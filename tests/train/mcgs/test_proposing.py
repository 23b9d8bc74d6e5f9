"""`RuleProposer`: knobs and their space."""

from __future__ import annotations

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


def test_space_of_all_has_structure_as_choices() -> None:
    knobs = {knob.name: knob.choices for knob in RULES.space().knobs}
    assert knobs[TILE][0] == ABSENT and "loop_order/matrix_product/i" in knobs


def test_values_and_tuned_are_inverse() -> None:
    variant = made(tile("4 x 2 x 8"), flags("level", "-O3"))
    space = RULES.space()
    values = RULES.values(space, variant)
    assert values is not None and values[TILE] == "4 x 2 x 8"
    again = RULES.tuned(space, values)
    assert again is not None and state_key(again.variant) == state_key(variant)
    changed = RULES.tuned(space, {**values, TILE: "6 x 2 x 8"})
    assert changed is not None and tile("6 x 2 x 8") in changed.variant.applied
    assert flags("level", "-O3") in changed.variant.applied


def test_impossible_settings_are_none() -> None:
    space = RULES.space()
    values = {knob.name: ABSENT for knob in space.knobs}
    swapped = {**values, TILE: "4 x 2 x 8", "loop_order/matrix_product/i/j": "terms outside"}
    assert RULES.tuned(space, swapped) is None, "the sums are computed in one way alone"


def test_approximate_choices_need_leave() -> None:
    start = read_variant(EXAMPLES["softmax"][1])
    for allowed in (False, True):
        rules = RuleProposer(start, approximate=allowed)
        names = {knob.name for knob in rules.space().knobs}
        assert ("fast_math/math" in names) == allowed
