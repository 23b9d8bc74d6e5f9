"""Variants render the same at all times; keys tell programs apart, not texts."""

from __future__ import annotations

import dataclasses

import pytest

from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.variant import MoveStep, context_key, read_variant, state_key

START = read_variant(EXAMPLES["matmul"][1])


@pytest.mark.parametrize("name", EXAMPLES)
def test_start_renders_to_its_own_text(name: str) -> None:
    kernel = EXAMPLES[name][1]
    assert read_variant(kernel).kernel() == kernel


def test_key_comments_and_layout_do_not_count() -> None:
    text = START.source.replace("float total = 0.0f;", "float total=0.0f; /* a sum */  // yes")
    text = "# a comment\n" + text.replace(
        "class ModelNew(nn.Module):", "class ModelNew(nn.Module): "
    )
    assert text != START.source
    assert state_key(dataclasses.replace(START, source=text)) == state_key(START)


def test_key_order_of_flags_and_history_do_not_count() -> None:
    one = dataclasses.replace(START, flags=("-O3", "-march=native"))
    other = dataclasses.replace(
        START, flags=("-march=native", "-O3"), applied=(MoveStep("a", "b", "c"),)
    )
    assert state_key(one) == state_key(other) != state_key(START)


@pytest.mark.parametrize(
    "change",
    [
        {"source": START.source.replace("0.0f", "1.0f")},
        {"source": START.source.replace("def forward(self, a, b)", "def forward(self, b, a)")},
        {"flags": ("-O1",)},
    ],
)
def test_key_another_program_has_another(change: dict[str, object]) -> None:
    assert state_key(dataclasses.replace(START, **change)) != state_key(START)  # type: ignore[arg-type]


def test_context_key_each_part_counts() -> None:
    parts = {"task": "a", "version": "1"}
    assert context_key(parts.items()) == context_key(reversed(parts.items()))
    assert context_key(parts.items()) != context_key({**parts, "version": "2"}.items())
