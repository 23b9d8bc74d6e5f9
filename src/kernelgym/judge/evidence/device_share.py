"""Share of a GPU's time that the kernel's own device functions take in a call. Pure.

torch's profiler names every kernel that ran on the device, with its time and the operator inside
which it was launched (`untrusted/watch/device_kernels.py`). A kernel that ran is one of three:

- torch's: an operator of torch launched it, so that the operator was counted;
- own: its name is one that the candidate's text was compiled to, or declares;
- a library's: neither. A BLAS that an extension calls is one, a fuser's generated kernel, or
  torch's kernels that an uncounted CUDA graph replays.

Not here:
- counting torch's operators: `kernelgym.judge.evidence.torch_share`;
- judging a kernel by its share: `kernelgym.judge.evidence.evidence`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["DeviceKernel", "DeviceShare", "OwnNames", "device_share", "read_kernels"]

_MOST = 200
_EMPTY_MS = 0.002
"""Time of a launch that does nothing, or little more: 0.001 to 0.0015 ms on an H100."""
_TORCH = ("aten::", "prim::", "prims::", "quantized::", "inductor::", "torch::", "cudnn::")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# The names of kernels in CUDA's text for NVRTC, and of Triton's that a graph replays: from the mark
# to the body. Words elsewhere name nothing that runs.
_DECLARED = re.compile(r"__global__([^{;]{1,400})|\bjit\b[^\n]*\n(?:\s*@[^\n]*\n)*\s*def\s+(\w+)")
_SYMBOL = re.compile(rb"_Z[A-Za-z0-9_.$]{2,4000}")
_WORD = re.compile(r"\w+")
_ANONYMOUS = "(anonymous namespace)"


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """Launches of one kernel, inside one operator or outside all."""

    name: str
    """Name of the kernel, readable (``void scale<float>(float*, int)``) or as Triton gives it."""
    operator: str
    """The innermost operator that launched it; empty if none did."""
    launches: int
    ms: float
    """Time of all launches together."""

    @property
    def busy_ms(self) -> float:
        """Time of the launches above that of launches that do nothing."""
        return max(0.0, self.ms - _EMPTY_MS * self.launches)


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """Time of the device in one call, by whose kernels it ran: own, torch's or libraries'."""

    own_ms: float
    """Time of the custom kernels, in milliseconds."""
    torch_ms: float
    """Time of kernels that torch's operators launched."""
    library_ms: float
    """Time of libraries' kernels that no operator of torch launched."""
    own_busy_ms: float
    """Time of the custom kernels above that of launches that do nothing."""
    library_busy_ms: float
    """Time of the libraries' kernels above that of launches that do nothing."""
    libraries: tuple[str, ...] = ()
    """Names of the libraries' kernels, longest first."""

    @property
    def own(self) -> float:
        """The custom kernels' share of the call's time on the device."""
        total = self.own_ms + self.torch_ms + self.library_ms
        return self.own_ms / total if total else 0.0

    @property
    def beside_libraries(self) -> float:
        """The custom kernels' share beside libraries, launches that do nothing left out."""
        if not self.library_busy_ms:
            return 1.0
        return self.own_busy_ms / (self.own_busy_ms + self.library_busy_ms)


class OwnNames:
    """The names that a candidate's text was compiled to.

    Args:
        source: The candidate's text.
        compiled: Names of the kernels that were launched and that Triton or NVRTC compiled.
        libraries: The content of the extensions that were built from the text. A compiler registers
            each device function under its mangled name, which stands in the library's data.
    """

    def __init__(
        self, source: str, compiled: Iterable[str] = (), libraries: Iterable[bytes] = ()
    ) -> None:
        plain = _COMMENT.sub(" ", source)
        declared = (text for found in _DECLARED.findall(plain) for text in found)
        self._declared = frozenset(word for text in declared for word in _WORD.findall(text))
        self._words = frozenset(_WORD.findall(plain))
        self._compiled, self._libraries = frozenset(compiled), tuple(libraries)

    @functools.cached_property
    def _symbols(self) -> frozenset[str]:
        found = (match for data in self._libraries for match in _SYMBOL.findall(data))
        return frozenset(symbol.decode("ascii") for symbol in found)

    def __contains__(self, name: str) -> bool:
        path = _path(name)
        # Namespaces of torch and of NVIDIA hold functions with common names, so each part of a name
        # must stand in the text, the last one as that of a kernel; or the extension holds an
        # instance of it.
        if name in self._compiled:
            return True
        if path and path[-1] in self._declared and self._words.issuperset(path):
            return True
        named = b"\0" + name.encode("utf-8", "replace") + b"\0"
        if any(named in data for data in self._libraries):
            return True
        parts = [f"{len(part)}{part}" for part in path]
        return bool(path) and any(all(p in symbol for p in parts) for symbol in self._symbols)


def _path(name: str) -> list[str]:
    """Return the parts of a readable name: ``void a::b<int>(float*)`` gives ``[a, b]``."""
    plain, depth = [], 0
    for mark in name.replace(_ANONYMOUS, ""):
        if mark in "<(":
            depth += 1
            if mark == "(" and depth == 1:
                break
        elif mark in ">)":
            depth = max(0, depth - 1)
        elif not depth:
            plain.append(mark)
    words = "".join(plain).split()
    return [part for part in words[-1].split("::") if part] if words else []


def read_kernels(seen: dict[str, Any]) -> tuple[DeviceKernel, ...] | None:
    """Return the kernels that a candidate claims, checked; None without any."""
    listed = seen.get("device_kernels")
    found = []
    for entry in listed[:_MOST] if isinstance(listed, list) else ():
        match entry:
            case [str(name), str(operator), int(launches), (int() | float()) as ms]:
                if launches > 0 and math.isfinite(ms) and ms >= 0:
                    found.append(DeviceKernel(name, operator, launches, float(ms)))
    return tuple(found) or None


def device_share(
    kernels: Iterable[DeviceKernel], own: OwnNames, *, captured: bool = False
) -> DeviceShare:
    """Return the device's time in a call, by whose kernels it ran.

    Args:
        kernels: The kernels that ran in a call.
        own: The candidate's names.
        captured: Whether the call replays a graph whose capture was watched: the operators in it
            were counted then, so what is not the candidate's is torch's.
    """
    times = {"own": 0.0, "torch": 0.0, "library": 0.0}
    busy = dict(times)
    libraries: dict[str, float] = {}
    for kernel in kernels:
        owner = _owner(kernel, own, captured)
        times[owner] += kernel.ms
        busy[owner] += kernel.busy_ms
        if owner == "library":
            libraries[kernel.name] = libraries.get(kernel.name, 0.0) + kernel.ms
    return DeviceShare(
        times["own"],
        times["torch"],
        times["library"],
        busy["own"],
        busy["library"],
        tuple(sorted(libraries, key=lambda name: -libraries[name])),
    )


def _owner(kernel: DeviceKernel, own: OwnNames, captured: bool) -> str:
    if kernel.operator.startswith(_TORCH):
        return "torch"
    if kernel.name in own:
        return "own"
    return "torch" if captured else "library"
