"""Which numbers of a Triton kernel can be set, and where."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernelgym_train.mcgs.proposing import RuleProposer
from kernelgym_train.mcgs.triton.knobs import knobs_of
from kernelgym_train.mcgs.triton.module import read_module
from kernelgym_train.mcgs.variant import Variant

HONEST = Path(__file__).parents[3] / "adversarial" / "honest"
KERNEL = """\
import triton
import triton.language as tl

{before}

@{decorator}
@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1.0, mask=at < n)


def run(x, out):
    add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
"""
LISTED = 'triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=4)'


def settable(source: str) -> set[str]:
    """Return the names of the numbers that can be set."""
    found = {each.name for each in knobs_of(read_module(source)) if each.literals or each.calls}
    return found


@pytest.mark.parametrize(
    ("before", "decorator", "names"),
    [
        pytest.param(
            "",
            f"triton.autotune(configs=[{LISTED}], key=['n'])",
            {"BLOCK", "num_warps", "num_stages", "maxnreg"},
            id="configurations in the decorator",
        ),
        pytest.param(
            f"CONFIGS = [{LISTED}]",
            "triton.autotune(CONFIGS, ['n'])",
            {"BLOCK", "num_warps", "num_stages", "maxnreg"},
            id="configurations in a list with a name",
        ),
        pytest.param(
            "CONFIGS = [triton.Config({'BLOCK': b}, num_warps=w) for b in (64,) for w in (2, 4)]",
            "triton.autotune(CONFIGS, ['n'])",
            {"num_stages", "maxnreg"},
            id="computed configurations",
        ),
        pytest.param(
            f"def configs():\n    return [{LISTED}]",
            "triton.autotune(configs(), ['n'])",
            set(),
            id="configurations of a function",
        ),
        pytest.param(
            f"def tuned(*key):\n    return triton.autotune([{LISTED}], key)",
            "tuned('n')",
            set(),
            id="a decorator of its own",
        ),
        pytest.param(
            "",
            "triton.heuristics({'BLOCK': lambda given: 64})",
            {"num_warps", "num_stages", "maxnreg"},
            id="heuristics",
        ),
    ],
)
def test_options_are_set_where_the_launch_takes_them(
    before: str, decorator: str, names: set[str]
) -> None:
    assert settable(KERNEL.format(before=before, decorator=decorator)) == names


def test_configurations_are_tried_alone_if_they_are_a_list() -> None:
    def alone(configs: str) -> list[str]:
        source = KERNEL.format(before=f"CONFIGS = {configs}", decorator="triton.autotune(CONFIGS)")
        start = Variant(source, "triton")
        proposer, found = RuleProposer(start), []
        while (made := proposer.propose(start, "change_block_sizes", len(found))) is not None:
            ast.parse(made.variant.source)
            found.append(made.step.choice)
        return [each for each in found if each.endswith("alone")]

    assert alone(f"[{LISTED}]") == ["configuration 1 alone", "configuration 2 alone"]
    first, second = "triton.Config({'BLOCK': b})", "triton.Config({'BLOCK': 64})"
    assert alone(f"[{first} if b > 64 else {second} for b in (64, 128)]") == []


def test_block_of_a_descriptor_is_set_where_both_read_it() -> None:
    source = (HONEST / "softmax_descriptor_rows.triton.py").read_text()
    assert not settable(source) & {"ROWS", "COLUMNS", "PART"}
    named = source.replace("[16, 128]", "[16, part]").replace("PART=128", "PART=part")
    head = "def softmax_in_parts(x, out):\n"
    assert head in named
    named = named.replace(head, f"{head}    part = 128\n")
    assert "PART" in settable(named)
    start = Variant(source, "triton")
    assert RuleProposer(start).propose(start, "single_pass_row", 0) is None


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(HONEST.glob("*.triton.py")), ids=lambda path: path.stem)
def test_moves_on_honest_kernels_are_python(path: Path) -> None:
    start = Variant(path.read_text(), "triton")
    proposer = RuleProposer(start, approximate=True)
    for move, _ in proposer.priors(start):
        number = 0
        while (made := proposer.propose(start, move, number)) is not None:
            ast.parse(made.variant.source)
            number += 1
