"""Open and end the sandboxed processes that run code for a worker.

Contract: `CandidateProcesses.open` returns a fresh candidate process, forked by a zygote. Zygotes
keep further processes on standby; on a CUDA device these create their contexts ahead of need. There
is one zygote for each `ZygoteFamily` of languages that was asked for.

Not covered:
- starting and forking: `kernelgym.judge.processes`;
- requests to a candidate: `kernelgym.judge.session.session`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError, UsageError
from kernelgym.judge.compiling.builder import Builder
from kernelgym.judge.compiling.library_cache import BuiltLibrary
from kernelgym.judge.compiling.programs import Away
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.processes.candidate_handle import Candidate, CandidateKind, makes_streams
from kernelgym.judge.processes.zygote_handle import (
    Zygote,
    ZygoteFamily,
    family_of,
    start_zygote,
)
from kernelgym.judge.sandbox import tiers
from kernelgym.judge.sandbox.paths import readable_paths
from kernelgym.judge.session.session import CandidateSession
from kernelgym.languages import LANGUAGES, Language
from kernelgym.pretrained import modules_of, weight_bytes
from kernelgym.rulesets import Ruleset
from kernelgym.types import Kernel, Problem


class CandidateProcesses:
    """Opens sandboxed processes on one device.

    Args:
        ruleset: The rules.
        accelerator: The device.
        folder: Cache folder, shared with other workers.
        scratch: Folder for temporary files.
        tier: Sandbox tier, ``auto`` or ``require:TIER``.
        name: The device's name.
        begun: A zygote that is starting already; None if there is none.
    """

    def __init__(
        self,
        ruleset: Ruleset,
        accelerator: Accelerator,
        folder: Path,
        scratch: Path,
        tier: str,
        name: str,
        begun: Zygote | None = None,
    ) -> None:
        self._ruleset, self._accelerator = ruleset, accelerator
        self._folder, self._scratch, self._tier, self._name = folder, scratch, tier, name
        self._zygotes: dict[ZygoteFamily, Zygote] = {}
        self._begun = {} if begun is None else {begun.family: begun}  # not ready yet
        self._builder: Builder | None = None
        self._weight_bytes = 0
        self._modules: tuple[str, ...] = ()

    def fit(self, problem: Problem) -> None:
        """Fit the processes that are opened from now on to a problem's pretrained models."""
        self._weight_bytes, self._modules = weight_bytes(problem), modules_of(problem)

    @contextlib.contextmanager
    def open(
        self, language: str, source: str, exec_allowed: bool = False, target: str = ""
    ) -> Iterator[CandidateSession]:
        """Yield a session with a fresh process for a source; end the process with the block.

        Its zygote forks the next standby process meanwhile; `settle` waits for that one's context
        on the device.

        Args:
            language: The language of the source.
            source: The source that the process will run.
            exec_allowed: Whether the process may start programs.
            target: GPU that extensions are built for and not loaded, such as ``cuda:90a``; empty
                to build them for this device.

        Raises:
            JudgeError: If the process cannot be started.
            UsageError: If the required sandbox tier is not available.
        """
        zygote = self.zygote(language)
        zygote.preload(self._modules)
        candidate = zygote.take(
            CandidateKind(exec_allowed, makes_streams(source), self._weight_bytes)
        )
        zygote.replenish()
        entry = LANGUAGES.get(language)  # None for the reference
        build = None if entry is None else self._build(zygote, target, entry)
        accelerator = self._accelerator
        if entry is not None and entry.is_assembled(self._name) and self._builder is not None:
            self._builder.stand_by()  # the builder starts while the kernel is compiled
        session = CandidateSession(
            candidate, self._ruleset, build, accelerator.device, accelerator.device_lock
        )
        session.channel.loads_builds = not target
        session.buffers.alone = accelerator.is_alone
        try:
            yield session
        finally:
            session.channel.log()  # reads the output now: it must outlive the process
            self.discard(candidate)
            session.buffers.close()

    def ask_for_contexts(self) -> None:
        """Have standby processes create their contexts on the device."""
        for zygote in self._zygotes.values():
            zygote.ask_for_contexts()

    def lack(self, standby: int) -> bool:
        """Return True if a used zygote has fewer than `standby` processes ready."""
        return any(zygote.lacks(standby) for zygote in self._zygotes.values())

    def add(self, standby: int) -> None:
        """Start one more standby process, for a zygote with fewer than `standby`.

        `settle` waits for its context.

        Raises:
            JudgeError: If the process does not start.
        """
        for zygote in self._zygotes.values():
            if zygote.lacks(standby):
                zygote.add()
                return

    def are_settled(self) -> bool:
        """Return True if all standby processes have their contexts."""
        return all(zygote.is_settled() for zygote in self._zygotes.values())

    def settle(self, ahead: bool = False) -> bool:
        """Wait for the contexts of standby processes; return False if one fails.

        Args:
            ahead: Whether no kernel waits for these processes yet, so that waiting ends sooner.
        """
        return all([zygote.settle(ahead) for zygote in self._zygotes.values()])

    def discard(self, candidate: Candidate) -> None:
        """End a candidate; if that fails, end the zygotes, without raising."""
        try:
            candidate.discard()
        except JudgeError:
            self.reset()

    def begin(self, language: str) -> None:
        """Start the zygote for a language, without waiting until it is ready.

        Raises:
            JudgeError: If the zygote cannot be started.
        """
        family = family_of(language, self._name)
        if family in self._zygotes:
            return
        if family not in self._begun:
            limits, scratch = self._ruleset.limits, self._scratch
            self._begun[family] = start_zygote(
                language, limits, self._folder, scratch, self._tier, self._name
            )
        device = self._accelerator
        if device.capability is not None:
            self._begun[family].meet(
                device.capability, device.trial_memory(), device.visible, device.other_gpus
            )

    def zygote(self, language: str) -> Zygote:
        """Return the zygote for a language, started on the first request.

        Raises:
            JudgeError: If the zygote does not start.
            UsageError: If the required sandbox tier is not available.
        """
        family = family_of(language, self._name)
        if family not in self._zygotes:
            self.begin(language)
            zygote = self._begun.pop(family)
            try:
                zygote.wait_ready()
            except JudgeError as error:
                zygote.close()
                if self._tier != "auto" and "no sandbox tier" in str(error):
                    raise UsageError(
                        f"isolation {self._tier!r} is not available: {error}"
                    ) from None
                raise
            except BaseException:
                zygote.close()
                raise
            if not zygote.tier_is_known and self._tier == "auto":
                tiers.remember(self._folder, self._name, zygote.tier)
            self._zygotes[family] = zygote
        return self._zygotes[family]

    def _build(self, zygote: Zygote, target: str, language: Language) -> Any:
        if target:
            kind, _, name = target.partition(":")
            if kind == "hip":
                build = self._new_builder(zygote, None, hip=name).build
                return functools.partial(build, language=language)
            number = name.rstrip("af")
            suffix = name.partition(number)[2]
            builder = self._new_builder(zygote, divmod(int(number), 10), suffix)
            return functools.partial(builder.build, language=language)
        if self._builder is None:
            here = self._accelerator.capability if self._accelerator.on_cuda else None
            self._builder = self._new_builder(zygote, here)
        return functools.partial(self._timed_build, language=language)

    def _new_builder(
        self,
        zygote: Zygote,
        capability: tuple[int, int] | None,
        suffix: str = "",
        hip: str = "",
    ) -> Builder:
        libraries = self._folder / "builds"
        libraries.mkdir(parents=True, exist_ok=True)
        return Builder(
            libraries,
            self._scratch,
            zygote.tier,
            self._ruleset.limits,
            readable_paths(),
            capability,
            suffix=suffix,
            hip=hip,
        )

    def _timed_build(
        self, arguments: Any, away: Away, language: Language | None = None
    ) -> BuiltLibrary:
        assert self._builder is not None
        with self._accelerator.clock.stage("build"):
            return self._builder.build(arguments, away, language)

    def note_builds(self, kernel: Kernel, session: CandidateSession) -> None:
        """Note the builds of a kernel, so that they can be found again."""
        if self._builder is not None and session.channel.made:
            self._builder.note(kernel.digest, session.channel.made)

    def reset(self) -> None:
        """End all zygotes after a judge failure; the next job starts new."""
        self._end_zygotes()
        tiers.forget(self._folder, self._name)  # the failure may be a tier that stopped working

    def close(self) -> None:
        """End the zygotes and the builder."""
        self._end_zygotes()
        if self._builder is not None:
            self._builder.close()

    def _end_zygotes(self) -> None:
        for zygotes in (self._zygotes, self._begun):
            for zygote in zygotes.values():
                zygote.close()
            zygotes.clear()
