"""The trusted side's handle on a zygote, the process that forks candidates."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernelgym.errors import JudgeError
from kernelgym.judge.processes.candidate_handle import USUAL, Candidate, Kind
from kernelgym.judge.sandbox.paths import (
    compiler_paths,
    driver_paths,
    listable_paths,
    readable_paths,
)
from kernelgym.judge.sandbox.tiers import recall
from kernelgym.judge.untrusted import protocol
from kernelgym.languages import is_interpreted
from kernelgym.rulesets import Limits

__all__ = ["Zygote", "start_zygote"]

_PROGRAM = Path(protocol.__file__).with_name("zygote.py")
_START_S = 120.0  # importing torch and Triton on a busy machine
_AHEAD_S = 5.0  # a driver that takes longer is held up by a kernel that hangs
_KILL_S = 10.0  # freeing gigabytes takes the kernel a while


class Zygote:
    """A running `zygote.py`, with candidates forked ahead of need.

    Args:
        interpreted: Whether Triton is imported with its interpreter on.
        limits: What each candidate may use.
        readable: Paths its candidates may read, as from `readable_paths`.
        scratch_root: Folder in which scratch folders are made.
        tier: A tier name, or ``auto`` for the strongest the host allows.
        device: Where candidates run. If that is not the CPU, it waits until it `meets` it.
        tier_is_known: Whether `tier` was found to work before, and need not be tried.

    Raises:
        JudgeError: If it does not start.
    """

    def __init__(
        self,
        interpreted: bool,
        limits: Limits,
        readable: tuple[str, ...],
        scratch_root: Path,
        tier: str = "auto",
        device: str = "cpu",
        tier_is_known: bool = False,
    ) -> None:
        self.interpreted, self.tier_is_known = interpreted, tier_is_known
        self._has_met = False
        self._scratch_root = scratch_root
        self._limits = limits
        self._next_id = 0
        self._exits: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._on_device = device != "cpu"
        self._standby: dict[Kind, list[Candidate]] = {}
        self._coming: dict[Kind, Candidate] = {}
        self._wanted: set[Kind] = set()
        self._decoder = protocol.Decoder()
        self._errors = tempfile.TemporaryFile()
        self._control, theirs = socket.socketpair()
        plan = {
            "readable": readable,
            "listable": listable_paths(),
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
            "open_files": limits.open_files,
            "processes": limits.processes,
            "gpu": device != "cpu",
        }
        config = json.dumps(
            {
                "plan": plan,
                "tier": tier,
                "tier_is_known": tier_is_known,
                "device": device,
                "compiler_paths": compiler_paths(),
            }
        )
        program = str(_PROGRAM)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", program, str(theirs.fileno()), config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=(theirs.fileno(),),
                env=_clean_environment(interpreted, scratch_root),
                start_new_session=True,
            )
        self.tier = ""

    def meet(self, capability: tuple[int, int], shared: str) -> None:
        """Tell it of its device; it is told once.

        Args:
            capability: The device's compute capability.
            shared: Handle of device memory that a trial candidate must be able to open.
        """
        told = {"shared": shared, "arch": 10 * capability[0] + capability[1]}
        if not self._has_met:
            with contextlib.suppress(OSError):  # if it is gone, who waits for it is told why
                protocol.send(self._control, told)
        self._has_met = True

    def wait_ready(self) -> None:
        """Block until it serves; called by `take`, so only needed to start several at once."""
        if self.tier:
            return
        deadline = time.monotonic() + _START_S
        while not self.tier:
            if not self.pump(max(0.0, deadline - time.monotonic())):
                raise JudgeError(f"the zygote did not start: {self._complaint()}")

    def take(self, kind: Kind = USUAL) -> Candidate:
        """Return a fresh candidate; the next one is forked by `replenish`."""
        self.wait_ready()
        taken = self._longest_standing(kind) or self._next(kind)
        try:
            self._await(taken)
        except JudgeError:
            taken.discard()
            raise
        if not kind.streams:  # few kernels have any; to hold a second process ready costs them all
            self._wanted.add(kind)
        return taken

    def replenish(self) -> None:
        """Have one of each kind that was taken so far stand by, where none does.

        On a device the one after it is forked, too. It starts the driver, which takes as long as
        making a context does and needs no device lock, and makes its context when it is its turn.
        """
        for kind in self._wanted:
            if not self._standby.get(kind):
                self._standby[kind] = [self._next(kind)]
            if self._on_device and kind not in self._coming:
                self._coming[kind] = self._spawn(kind)

    def lacks(self, ready: int) -> bool:
        """Say whether fewer than so many of the usual kind stand by, though they are wanted."""
        return USUAL in self._wanted and len(self._standby.get(USUAL, ())) < ready

    def add(self) -> None:
        """Fork one more of the usual kind, to stand by once it stands in its sandbox.

        Raises:
            JudgeError: If it does not get there.
        """
        candidate = self._next(USUAL)
        try:
            candidate.wait_ready(_AHEAD_S)
        except BaseException:
            candidate.discard()
            raise
        self._standby.setdefault(USUAL, []).append(candidate)

    def ask_for_contexts(self) -> None:
        """Have what stands by make its context on the device."""
        if self._on_device:
            for candidate in self._all_standing():
                candidate.ask_for_context()

    def is_settled(self) -> bool:
        """Say whether all that stands by has its context on the device, if it is to have one."""
        return not self._on_device or all(each.has_context for each in self._all_standing())

    def settle(self, ahead: bool = False) -> bool:
        """Wait until what stands by has its context on the device; False if something fails to.

        Args:
            ahead: Nothing waits for them: give up sooner.
        """
        settled = True
        for standing in self._standby.values():
            for candidate in list(standing):
                try:
                    self._await(candidate, _AHEAD_S if ahead else _START_S)
                except JudgeError:  # the next one may fare better, when it is needed
                    settled = False
                    standing.remove(candidate)
                    candidate.discard()
        return settled

    def _all_standing(self) -> list[Candidate]:
        return [candidate for standing in self._standby.values() for candidate in standing]

    def _next(self, kind: Kind) -> Candidate:
        """Return one that is to stand by from now on."""
        coming = self._coming.pop(kind, None)
        if coming is not None and coming.ended():
            coming.discard()
            coming = None
        return coming or self._spawn(kind)

    def _longest_standing(self, kind: Kind) -> Candidate | None:
        standing = self._standby.get(kind, [])
        while standing:
            candidate = standing.pop(0)
            if not candidate.ended():
                return candidate
            candidate.discard()  # what killed it while it stood by was not a kernel of anybody's
        return None

    def _await(self, candidate: Candidate, patience_s: float = _START_S) -> None:
        candidate.wait_ready(patience_s)
        if self._on_device:
            candidate.wait_for_context(patience_s)

    def _spawn(self, kind: Kind) -> Candidate:
        self._next_id += 1
        candidate = Candidate(self, self._next_id, self._scratch_root, self._limits)
        try:
            candidate.start(self._control, kind)
        except OSError as error:
            candidate.discard()
            raise JudgeError(f"the zygote is gone: {error}; {self._complaint()}") from error
        return candidate

    def pump(self, timeout_s: float) -> bool:
        """Handle what the zygote says; False if it said nothing in time or is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if not poll.poll(timeout_s * 1e3):
            return False
        try:
            data = self._control.recv(1 << 16)
        except ConnectionError:  # gone, with something unread that it was told
            return False
        if not data:
            return False
        self._decoder.feed(data)
        while (message := self._decoder.next()) is not None:
            if "tier" in message:
                self.tier = str(message["tier"])
            elif "exited" in message:
                self._exits[message["exited"]] = message["code"]
            elif "spawned" in message:
                self._pids[message["spawned"]] = message["pid"]
        return True

    def pid(self, candidate_id: int) -> int:
        """Process id of a candidate that is known to run."""
        deadline = time.monotonic() + _START_S
        while candidate_id not in self._pids:
            if not self.pump(max(0.0, deadline - time.monotonic())):
                raise JudgeError("the zygote does not say which process it forked")
        return self._pids[candidate_id]

    def exit_code(self, candidate_id: int, timeout_s: float = 0.0) -> int | None:
        """Exit code of a candidate (negative: signal), or None if it still runs."""
        deadline = time.monotonic() + timeout_s
        while candidate_id not in self._exits:
            if not self.pump(max(0.0, deadline - time.monotonic())):
                return None
        return self._exits[candidate_id]

    def kill(self, candidate_id: int) -> None:
        """Kill a candidate with everything it started; returns when it is gone.

        Raises:
            JudgeError: If it is still there after two seconds.
        """
        if candidate_id not in self._exits:
            self.begin_kill(candidate_id)
            if self.exit_code(candidate_id, _KILL_S) is None:
                raise JudgeError("a candidate could not be killed")
        self._exits.pop(candidate_id, None)
        self._pids.pop(candidate_id, None)

    def begin_kill(self, candidate_id: int) -> None:
        """Have a candidate be killed with everything it started; returns at once.

        Raises:
            JudgeError: If the zygote is gone.
        """
        try:
            protocol.send(self._control, {"op": "kill", "id": candidate_id})
        except OSError as error:
            raise JudgeError("the zygote is gone") from error

    def _complaint(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """End the zygote; the kernel takes every candidate down with it."""
        for candidate in [*self._all_standing(), *self._coming.values()]:
            with contextlib.suppress(JudgeError):  # it may be what failed
                candidate.discard()
        self._standby.clear()
        self._coming.clear()
        self._control.close()
        try:
            self._process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def _clean_environment(interpreted: bool, scratch_root: Path) -> dict[str, str]:
    names = ("PATH", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "KERNELGYM_PLAIN_INTERPRETER")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.startswith("CUDA_")}
    return kept | {
        "LANG": "C.UTF-8",
        "HOME": str(scratch_root),
        "TRITON_INTERPRET": "1" if interpreted else "0",
        # Each arena of the C library reserves address space, which is what we limit.
        "MALLOC_ARENA_MAX": "8",
    }


def start_zygote(
    language: str, limits: Limits, folder: Path, scratch: Path, tier: str, device: str
) -> Zygote:
    """Start what forks the processes for a language, without waiting for it to be there.

    Args:
        language: The language.
        limits: What each candidate may use.
        folder: Cache folder, which remembers tiers.
        scratch: Folder for temporary files.
        tier: Sandbox tier, ``auto`` or ``require:TIER``.
        device: Where candidates run.
    """
    on_device = device != "cpu"
    known = recall(folder, device, tier)
    return Zygote(
        is_interpreted(language, device),
        limits,
        readable_paths(*(driver_paths() if on_device else ())),
        scratch,
        known or tier,
        device,
        tier_is_known=bool(known),
    )
