"""Evidence from the process that is judged, gathered in the midst of its calls.

It spares a process, and can only speak for a kernel: whoever it does not speak for is asked in a
process of its own (`kernelgym.judge.evidence.evidence.gather`).
"""

from __future__ import annotations

import ast
import random
import re
from typing import Any

from kernelgym.judge.compare.compare import Comparison
from kernelgym.judge.evidence.evidence import Evidence, counted, first_two, profiled, third
from kernelgym.judge.evidence.torch_share import Work
from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.stage_clock import StageClock
from kernelgym.languages import LANGUAGES
from kernelgym.types import Kernel

__all__ = ["Watch", "can_be_watched"]

_WORKS_APART = re.compile(
    "compile|thread|concurrent|asyncio|numpy|ctypes|dlpack|__array|memoryview|storage"
    r"|getattr|attrgetter|methodcaller|import_|importlib|__dict__|\b(eval|exec|vars)\b"
)


def can_be_watched(kernel: Kernel) -> bool:
    """Say whether a kernel can be asked between its judged calls.

    What functions of extensions give is overwritten when they are taken out, and `torch.compile`
    is replaced while there is watching to do: both are for a process of their own. So are kernels
    that may keep something from calls before the watched one that works behind its back: threads,
    and other views of memory.
    """
    entry = LANGUAGES.get(kernel.language)  # None for the reference
    if entry is None or not entry.watched_between_calls:
        return False
    if not _WORKS_APART.search(kernel.source):
        return True
    try:
        tree = ast.parse(kernel.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # Comments and docstrings may say what they like.
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    words = (_word(node) for node in ast.walk(tree) if id(node) not in said)
    return not any(map(_WORKS_APART.search, words))


def _word(node: ast.AST) -> str:
    """Return the name or the text that a node of a module holds itself."""
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
            return word
        case ast.ImportFrom(module=word) if word is not None:
            return word
        case ast.Constant(value=word) if isinstance(word, str):
            return word
    return ""


class Watch:
    """Evidence from the process that is judged, gathered between its calls.

    Whatever fails once `begun`, the kernel may not have borne that its launches were taken out: it
    is to be judged anew, without.

    Args:
        run: Its process was made ready by `prepare`, the reference has its calls planned.
        clock: Is told what more it takes than the judged calls.
    """

    def __init__(self, run: LiveRun, clock: StageClock) -> None:
        self._run, self._session, self._reference = run, run.session, run.reference
        self._clock, reference = clock, run.reference
        self.begun = False
        """Whether a call was watched by now."""
        self.found: Evidence | None = None
        """What speaks for the kernel; None if nothing does."""
        # Not the first call: what is set up there is to be as it is in all others.
        telling = reference.kind_of(len(reference.plan))
        places = [n for n, kind in enumerate(reference.plan) if n and kind == telling]
        secret = random.Random(run.case.seeds.derive("watched"))
        # What has state would be asked in another than it has without; and what a reference is
        # known to give on values that everybody knows is not computed again, and so not counted.
        asked_apart = reference.stateful or run.session.public is not None
        self._place = secret.choice(places) if places and not asked_apart else None

    def call(self, index: int) -> Comparison:
        """Make and judge one call, and learn from it if it is the one."""
        if index != self._place:
            return self._session.call(self._reference, index)
        self.begun = True
        self._session.buffers.move()
        self._session.trace("record")
        with counted(self._reference.model) as counter:
            outcome = self._session.call(self._reference, index)
        seen = self._session.trace("ablate")
        if outcome.passed:
            left_s = self._session.channel.left_s
            with self._clock.stage("evidence"):
                self._learn(seen, Work.of(counter))
            self._session.channel.grant(left_s)
        self._session.trace("off")
        return outcome

    def _learn(self, seen: dict[str, Any], work: Work) -> None:
        evidence = first_two(seen, work, self._run.case.kernel)
        if evidence.complaint or seen.get("captured") is True:
            return
        evidence = third(evidence, self._run)
        if not (evidence.complaint or evidence.crashed):
            self.found = profiled(evidence, self._run)

    def end(self) -> None:
        """Stop watching, before the kernel is timed."""
        self._session.trace("end")
