"""Tells which floating-point types a problem names in its source or loads.

Contract: nothing is run, so that prompts and checks of languages can ask. The judge looks at the
tensors themselves.

Not covered: types that neither a name in the text nor a pretrained model's configuration shows.
"""

from __future__ import annotations

import ast
import functools

from kernelgym.pretrained import weight_types
from kernelgym.rulesets import HALF_PRECISIONS, Precision, Ruleset
from kernelgym.types import Problem

_TYPES: dict[str, Precision] = {"bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}
_WORDS: dict[str, Precision] = {"half": "fp16", "double": "fp64"}
"""Words that name a floating-point type only as ``torch.half`` or in a call such as
``x.half()``."""


def judged_precisions(problem: Problem, rules: Ruleset) -> tuple[Precision, ...]:
    """Return the precisions in which a problem is judged, as its text tells them.

    Under ``own`` these are the types that the problem names, and those of the pretrained weights
    that it loads, as far as they are on this machine; ``fp32`` if there are none.
    """
    if rules.precision != "own":
        return (rules.precision,)
    stored = {_TYPES[each] for each in weight_types(problem) if each in _TYPES}
    return tuple(sorted({*named_precisions(problem.source), *stored})) or ("fp32",)


def screening_rules(problem: Problem, rules: Ruleset) -> Ruleset:
    """Return the rules at the lowest precision a problem's text names.

    For `kernelgym.answers.screening.screen`: fp16 is not a downgrade in an fp16 problem.
    """
    named = judged_precisions(problem, rules)
    return rules.at(next((name for name in HALF_PRECISIONS if name in named), named[0]))


@functools.lru_cache(maxsize=1024)
def named_precisions(source: str) -> tuple[Precision, ...]:
    """Return the precisions that a source names, without fp32, sorted."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()  # the judge says what is wrong with the problem
    found: set[Precision] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.alias):
            name = _last_name(node)
            if name in _TYPES:
                found.add(_TYPES[name])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            if node.func.attr in _WORDS:
                found.add(_WORDS[node.func.attr])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "torch" and node.attr in _WORDS:
                found.add(_WORDS[node.attr])
    return tuple(sorted(found))


def _last_name(node: ast.Name | ast.Attribute | ast.alias) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else node.name
