"""Evidence gathered from the judged process itself, between its judged calls.

This saves a second process. It can only speak for a kernel: where it does not, the judge gathers
evidence in a second process (`kernelgym.judge.evidence.evidence.gather`).
"""

from __future__ import annotations

import ast
import random
import re
from typing import Any

from kernelgym.judge.compare.compare import OutputComparison
from kernelgym.judge.evidence.evidence import (
    Evidence,
    from_watched_call,
    on_device,
    profiled,
    without_own_kernels,
)
from kernelgym.judge.evidence.torch_share import TorchWork, counted
from kernelgym.judge.session.live_run import LiveRun
from kernelgym.judge.stage_clock import StageClock
from kernelgym.languages import LANGUAGES
from kernelgym.types import Kernel

_WORKS_APART = re.compile(
    "compile|thread|concurrent|asyncio|numpy|ctypes|dlpack|__array|memoryview|storage"
    r"|getattr|attrgetter|methodcaller|import_|importlib|__dict__|\b(eval|exec|vars)\b"
)


def can_be_watched(kernel: Kernel) -> bool:
    """Return True if a kernel can be watched between its judged calls.

    The other kernels need a second process:

    - kernels in extensions: taking them out overwrites what the extension's functions return;
    - kernels that call `torch.compile`, which the tracer replaces while it watches;
    - kernels that may keep something from earlier calls that works unseen in the watched call:
      threads, and other views of memory.
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
    # Comments and docstrings run nothing: a word in them must not cost a second process.
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    words = (_word(node) for node in ast.walk(tree) if id(node) not in said)
    return not any(map(_WORKS_APART.search, words))


def _word(node: ast.AST) -> str:
    """Return the name or text that a syntax node holds itself."""
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
            return word
        case ast.ImportFrom(module=word) if word is not None:
            return word
        case ast.Constant(value=word) if isinstance(word, str):
            return word
    return ""


class InlineWatch:
    """Evidence gathered from the judged process, between its judged calls.

    Once `begun`, any failure may come from a kernel that does not work with its launches taken
    out. The caller then judges the kernel again, unwatched.

    Args:
        run: The live run; `prepare` has made its process ready, and its reference has planned its
            calls.
        clock: Counts the time that watching adds to the judged calls.
    """

    def __init__(self, run: LiveRun, clock: StageClock) -> None:
        self._run, self._session, self._reference = run, run.session, run.reference
        self._clock, reference = clock, run.reference
        self.begun = False
        """Whether a call has been watched so far."""
        self.found: Evidence | None = None
        """Evidence that speaks for the kernel; None if there is none."""
        # Not the first call: a kernel sets itself up there, as it must in every unwatched run.
        telling = reference.kind_of(len(reference.plan))
        places = [n for n, kind in enumerate(reference.plan) if n and kind == telling]
        secret = random.Random(run.case.seeds.derive("watched"))
        # The extra call would change a stateful model's state. Under public seeds the reference's
        # output may come from `PublicCalls`: nothing is computed then, and no work is counted.
        asked_apart = reference.stateful or run.session.public is not None
        self._place = secret.choice(places) if places and not asked_apart else None

    def call(self, index: int) -> OutputComparison:
        """Make and judge one call; gather evidence in the chosen one."""
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
                self._learn(seen, TorchWork.of(counter, self._reference.model))
            self._session.channel.grant(left_s)
        self._session.trace("off")
        return outcome

    def _learn(self, seen: dict[str, Any], work: TorchWork) -> None:
        case = self._run.case
        evidence = from_watched_call(seen, work, case.kernel, case.ruleset)
        if evidence.complaint or seen.get("captured") is True:
            return
        evidence = on_device(evidence, self._run, work)
        if evidence.complaint or evidence.crashed:
            return
        evidence = without_own_kernels(evidence, self._run)
        if not (evidence.complaint or evidence.crashed):
            self.found = profiled(evidence, self._run)

    def end(self) -> None:
        """Stop watching, before the kernel is timed."""
        self._session.trace("end")
