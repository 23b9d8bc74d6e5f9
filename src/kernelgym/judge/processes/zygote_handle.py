"""The trusted side's handle on a zygote, the process that forks candidates.

The handle also keeps candidates on standby: processes that are forked and sandboxed, and on a GPU
have their context, before a kernel needs them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgym.errors import JudgeError
from kernelgym.judge.environment import ZYGOTE, header_folders, kept_variables
from kernelgym.judge.processes.candidate_handle import USUAL, Candidate, CandidateKind
from kernelgym.judge.processes.trusted_process import TrustedProcess
from kernelgym.judge.sandbox.paths import (
    compiler_paths,
    driver_paths,
    listable_paths,
    readable_paths,
)
from kernelgym.judge.sandbox.tiers import recall
from kernelgym.judge.untrusted import protocol
from kernelgym.languages import half_of, is_interpreted
from kernelgym.rulesets import Limits

_PROGRAM = Path(protocol.__file__).with_name("zygote.py")
_START_S = 120.0  # a busy machine needs this long to import torch and Triton
_AHEAD_S = 5.0  # a driver that takes longer is blocked by a kernel that never ends
_KILL_S = 10.0  # the operating system needs time to free gigabytes


@dataclass(frozen=True, slots=True)
class ZygoteFamily:
    """Properties that kernels must share to be forked from the same zygote."""

    interpreted: bool
    """Whether Triton is imported with its interpreter on."""
    half: str = ""
    """Name of the language's module beside the kernel (`Language.half`), whose packages the zygote
    imports; empty for languages without one, which never pay for another's imports."""


def family_of(language: str, device: str) -> ZygoteFamily:
    """Return the family of zygotes that fork the kernels of a language on a device.

    References, in PyTorch, get the family without an interpreter and without a module.
    """
    return ZygoteFamily(is_interpreted(language, device), half_of(language))


class Zygote:
    """A running `zygote.py`, with candidates forked ahead of need.

    Args:
        family: Family of the kernels that its candidates run.
        limits: Limits of each candidate.
        readable: Paths its candidates may read, from `readable_paths`.
        scratch_root: Folder for the candidates' scratch folders.
        tier: A tier name, or ``auto`` for the strongest the host allows.
        device: Device on which candidates run. On a GPU, the zygote waits for `meet` before it is
            ready.
        tier_is_known: Whether `tier` has worked before; it is not tried again then.

    Raises:
        JudgeError: If it does not start.
    """

    def __init__(
        self,
        family: ZygoteFamily,
        limits: Limits,
        readable: tuple[str, ...],
        scratch_root: Path,
        tier: str = "auto",
        device: str = "cpu",
        tier_is_known: bool = False,
    ) -> None:
        self.family, self.tier_is_known = family, tier_is_known
        self._has_met = False
        self._scratch_root = scratch_root
        self._limits = limits
        self._next_id = 0
        self._exits: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._on_device = device != "cpu"
        self._standby: dict[CandidateKind, list[Candidate]] = {}
        self._coming: dict[CandidateKind, Candidate] = {}
        self._wanted: set[CandidateKind] = set()
        self._preloaded: set[str] = set()
        self._decoder = protocol.Decoder()
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
                "half": family.half,
                "variables": header_folders(),
            }
        )
        self._process = TrustedProcess(
            ["-I", "-B", str(_PROGRAM)],
            _clean_environment(family.interpreted, scratch_root),
            after=[config],
        )
        self._control = self._process.socket
        self.tier = ""

    def meet(
        self, capability: tuple[int, int], shared: str, gpu: str, hidden: Sequence[str]
    ) -> None:
        """Send the zygote the facts about its device; later calls do nothing.

        Args:
            capability: The device's compute capability.
            shared: Handle of device memory that a trial candidate must be able to open.
            gpu: Value of CUDA_VISIBLE_DEVICES that names the device by its UUID.
            hidden: Paths of device files that candidates must not open: those of the other GPUs.
        """
        arch = 10 * capability[0] + capability[1]
        told = {"shared": shared, "arch": arch, "gpu": gpu, "hidden": list(hidden)}
        if not self._has_met:
            with contextlib.suppress(OSError):  # if the zygote is gone, `wait_ready` says why
                protocol.send(self._control, told)
        self._has_met = True

    def preload(self, modules: Sequence[str]) -> None:
        """Have the zygote import modules, without waiting; later candidates then have them.

        Args:
            modules: Names of modules of installed packages.
        """
        new = [name for name in modules if name not in self._preloaded]
        if new:
            with contextlib.suppress(OSError):  # if the zygote is gone, `take` says why
                protocol.send(self._control, {"op": "import", "modules": new})
            self._preloaded.update(new)

    def wait_ready(self) -> None:
        """Wait until the zygote can fork candidates.

        `take` calls this. A caller needs it only to start several zygotes at the same time.
        """
        if self.tier:
            return
        deadline = time.monotonic() + _START_S
        while not self.tier:
            if not self.pump(max(0.0, deadline - time.monotonic())):
                raise JudgeError(f"the zygote did not start: {self._process.complaint()}")

    def take(self, kind: CandidateKind = USUAL) -> Candidate:
        """Return a fresh candidate, one on standby if there is one.

        `replenish` forks its successor.
        """
        self.wait_ready()
        taken = self._longest_standing(kind) or self._next(kind)
        try:
            self._await(taken)
        except JudgeError:
            taken.discard()
            raise
        # Few kernels use several streams or pretrained weights. A second process on standby would
        # cost every kernel.
        if not (kind.streams or kind.weight_bytes):
            self._wanted.add(kind)
        return taken

    def replenish(self) -> None:
        """Keep one candidate of each kind taken so far on standby.

        On a GPU the next one is forked, too. It starts the driver, which takes as long as making
        a context and needs no device lock. It makes its context when it goes on standby itself.
        """
        for kind in self._wanted:
            if not self._standby.get(kind):
                self._standby[kind] = [self._next(kind)]
            if self._on_device and kind not in self._coming:
                self._coming[kind] = self._spawn(kind)

    def lacks(self, ready: int) -> bool:
        """Return True if fewer than `ready` usual candidates are on standby.

        False before the first usual candidate was taken.
        """
        return USUAL in self._wanted and len(self._standby.get(USUAL, ())) < ready

    def add(self) -> None:
        """Fork one more candidate without special rights, and keep it on standby.

        Raises:
            JudgeError: If its sandbox cannot be set up.
        """
        candidate = self._next(USUAL)
        try:
            candidate.wait_ready(_AHEAD_S)
        except BaseException:
            candidate.discard()
            raise
        self._standby.setdefault(USUAL, []).append(candidate)

    def ask_for_contexts(self) -> None:
        """Request that the candidates on standby make their device contexts."""
        if self._on_device:
            for candidate in self._all_standing():
                candidate.ask_for_context()

    def is_settled(self) -> bool:
        """Return True if every candidate on standby has its context.

        On the CPU, where candidates make no context, always True.
        """
        return not self._on_device or all(each.has_context for each in self._all_standing())

    def settle(self, ahead: bool = False) -> bool:
        """Wait for the contexts of candidates on standby; False if one fails.

        A candidate that fails is discarded.

        Args:
            ahead: Whether no kernel waits for them; gives up after 5 s then, not 120 s.
        """
        settled = True
        for standing in self._standby.values():
            for candidate in list(standing):
                try:
                    self._await(candidate, _AHEAD_S if ahead else _START_S)
                except JudgeError:  # a fresh candidate may succeed when one is needed
                    settled = False
                    standing.remove(candidate)
                    candidate.discard()
        return settled

    def _all_standing(self) -> list[Candidate]:
        return [candidate for standing in self._standby.values() for candidate in standing]

    def _next(self, kind: CandidateKind) -> Candidate:
        """Return a candidate that was forked ahead of need; fork one if there is none."""
        coming = self._coming.pop(kind, None)
        if coming is not None and coming.ended():
            coming.discard()
            coming = None
        return coming or self._spawn(kind)

    def _longest_standing(self, kind: CandidateKind) -> Candidate | None:
        standing = self._standby.get(kind, [])
        while standing:
            candidate = standing.pop(0)
            if not candidate.ended():
                return candidate
            candidate.discard()  # it ended while on standby, before it was given a kernel
        return None

    def _await(self, candidate: Candidate, patience_s: float = _START_S) -> None:
        candidate.wait_ready(patience_s)
        if self._on_device:
            candidate.wait_for_context(patience_s)

    def _spawn(self, kind: CandidateKind) -> Candidate:
        self._next_id += 1
        candidate = Candidate(self, self._next_id, self._scratch_root, self._limits)
        try:
            candidate.start(self._control, kind)
        except OSError as error:
            candidate.discard()
            raise JudgeError(f"the zygote is gone: {error}; {self._process.complaint()}") from error
        return candidate

    def pump(self, timeout_s: float) -> bool:
        """Handle the zygote's messages until one arrives; return False if none comes in time."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if not poll.poll(timeout_s * 1e3):
            return False
        try:
            data = self._control.recv(1 << 16)
        except ConnectionError:  # the zygote ended before it read all requests
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
        """Return the process id of a running candidate.

        Raises:
            JudgeError: If the zygote does not report it.
        """
        deadline = time.monotonic() + _START_S
        while candidate_id not in self._pids:
            if not self.pump(max(0.0, deadline - time.monotonic())):
                raise JudgeError("the zygote does not say which process it forked")
        return self._pids[candidate_id]

    def exit_code(self, candidate_id: int, timeout_s: float = 0.0) -> int | None:
        """Return a candidate's exit code, negative for a signal; None if it still runs."""
        deadline = time.monotonic() + timeout_s
        while candidate_id not in self._exits:
            if not self.pump(max(0.0, deadline - time.monotonic())):
                return None
        return self._exits[candidate_id]

    def kill(self, candidate_id: int) -> None:
        """Kill a candidate and everything it started; wait until it is gone.

        Raises:
            JudgeError: If it still runs after 10 s.
        """
        if candidate_id not in self._exits:
            self.begin_kill(candidate_id)
            if self.exit_code(candidate_id, _KILL_S) is None:
                raise JudgeError("a candidate could not be killed")
        self._exits.pop(candidate_id, None)
        self._pids.pop(candidate_id, None)

    def begin_kill(self, candidate_id: int) -> None:
        """Have a candidate and all it started killed; do not wait.

        Raises:
            JudgeError: If the zygote is gone.
        """
        try:
            protocol.send(self._control, {"op": "kill", "id": candidate_id})
        except OSError as error:
            raise JudgeError("the zygote is gone") from error

    def close(self) -> None:
        """End the zygote; the operating system ends every candidate with it."""
        for candidate in [*self._all_standing(), *self._coming.values()]:
            with contextlib.suppress(JudgeError):  # the zygote may be gone, or the candidate stuck
                candidate.discard()
        self._standby.clear()
        self._coming.clear()
        self._control.close()
        self._process.end(_KILL_S)


def _clean_environment(interpreted: bool, scratch_root: Path) -> dict[str, str]:
    return kept_variables(ZYGOTE) | {
        "LANG": "C.UTF-8",
        "HOME": str(scratch_root),
        "TRITON_INTERPRET": "1" if interpreted else "0",
        # Spins before a thread of a parallel region sleeps, about half a millisecond. By default it
        # spins for some 5 ms; while two threads of a region share a processor, each takes it from
        # the other that long, and a window took up to 20 times as long.
        "GOMP_SPINCOUNT": "20000",
        # Each arena of the C library reserves address space, and the limit is on address space.
        "MALLOC_ARENA_MAX": "8",
        # Else torch's profiler writes into a kernel's output.
        "KINETO_LOG_LEVEL": "99",
    }


def start_zygote(
    language: str, limits: Limits, folder: Path, scratch: Path, tier: str, device: str
) -> Zygote:
    """Start a zygote for a language, without waiting until it is ready.

    Args:
        language: The language.
        limits: Limits of each candidate.
        folder: Cache folder, which holds the known sandbox tiers.
        scratch: Folder for temporary files.
        tier: Sandbox tier, ``auto`` or ``require:TIER``.
        device: Device on which candidates run.
    """
    on_device = device != "cpu"
    known = recall(folder, device, tier)
    return Zygote(
        family_of(language, device),
        limits,
        readable_paths(*(driver_paths() if on_device else ()), *_models()),
        scratch,
        known or tier,
        device,
        tier_is_known=bool(known),
    )


def _models() -> tuple[str, ...]:
    """Return the folder of pretrained models, if this process has one; it need not exist yet."""
    return tuple(filter(None, (os.environ.get("HF_HUB_CACHE"),)))
