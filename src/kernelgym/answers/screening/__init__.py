"""Screen a kernel's source by static rules: findings with codes, none of them a proof.

Contract: `screen` never raises and never runs anything. Rules read the syntax tree, so what is
said in comments, docstrings and names cannot trip them. A finding is soft unless the ruleset
lists its code in `Ruleset.hard_findings`. A source that cannot be parsed gets one finding
(``syntax_error`` or ``too_large``) and no rule looks at it.

It is not a boundary: code can be written so that no rule sees it. The judge isolates and checks;
screening only spares it the obvious, and tells the model early.
"""

from __future__ import annotations

from functools import lru_cache

from kernelgym.answers.python_source import UnreadableSource, read_python
from kernelgym.answers.screening.rules import RULES, seeming_language
from kernelgym.answers.screening.tree import survey
from kernelgym.rulesets import Ruleset
from kernelgym.types import Finding, Kernel, Severity

__all__ = ["RULES", "language_of", "screen"]

_MOST_PER_CODE = 5


def language_of(source: str) -> str:
    """Return the name of the language that a kernel seems to be written in; empty if unknown."""
    tree = read_python(source)
    try:
        return "" if isinstance(tree, UnreadableSource) else seeming_language(survey(tree))
    except RecursionError:
        return ""


@lru_cache(maxsize=64)
def screen(kernel: Kernel, ruleset: Ruleset) -> tuple[Finding, ...]:
    """Return what the rules find in `kernel`, by line; at most five findings of one code."""
    tree = read_python(kernel.source)
    if isinstance(tree, UnreadableSource):
        severity = Severity.HARD if tree.code in ruleset.hard_findings else Severity.INFO
        return (Finding(tree.code, tree.message, severity, tree.line),)
    try:
        facts = survey(tree)
        raised = [found for rule in RULES for found in rule(facts, kernel.language, ruleset)]
    except RecursionError:  # a chain of names so long that resolving it overflows
        return (Finding("syntax_error", "the source is nested too deeply", Severity.INFO),)
    findings: dict[Finding, None] = {}
    counts: dict[str, int] = {}
    for code, message, line in sorted(raised, key=lambda found: found[2]):
        finding = Finding(
            code,
            message,
            Severity.HARD if code in ruleset.hard_findings else Severity.SOFT,
            line,
        )
        if finding not in findings and counts.get(code, 0) < _MOST_PER_CODE:
            counts[code] = counts.get(code, 0) + 1
            findings[finding] = None
    return tuple(findings)
