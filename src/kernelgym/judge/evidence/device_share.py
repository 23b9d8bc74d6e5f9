"""Share of a GPU's time that the kernel's own device functions take in a call. Pure.

torch's profiler names every kernel that ran on the device, with its time and the operator inside
which it was launched (`untrusted/watch/device_kernels.py`). A kernel that ran is one of three:

- torch's: an operator of torch launched it, so that the operator was counted;
- own: its name is one that the candidate's text was compiled to. Triton and the driver name what
  was launched, an extension's symbols what nvcc compiled, and the text what C++ has NVRTC compile;
- a library's: neither. A BLAS that an extension calls is one, a fuser's generated kernel, or
  torch's kernels that an uncounted CUDA graph replays.

Not here:
- counting torch's operators: `kernelgym.judge.evidence.torch_share`;
- judging a kernel by its share: `kernelgym.judge.evidence.evidence`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernelgym.judge.compiling.library_symbols import computes
from kernelgym.judge.untrusted.watch.operator_work import is_product

_MOST = 200
_MOST_SPANS = 2000
_OWNERS = ("library", "torch", "product", "own")
_EMPTY_MS = 0.002
"""Milliseconds of a launch that does little; an empty launch takes 0.001 to 0.0015 ms on an
H100."""
_TORCH = ("aten::", "prim::", "prims::", "quantized::", "inductor::", "torch::", "cudnn::")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# The names of kernels in CUDA's text for NVRTC: from the mark to the body. Words elsewhere name
# nothing that runs.
_DECLARED = re.compile(r"__global__([^{;]{1,400})")
# Names that generators of NVIDIA's libraries make, whatever the candidate compiled.
_GENERATED = re.compile(
    r"(\w+ )?((ampere|volta|turing|maxwell|hopper)_\w*(gemm|conv|scudnn|wgrad|dgrad|fprop)"
    r"|sm\d+_xmma_|nvjet_|cutlass_\d+_|cutlass::Kernel2?<cutlass_\d)"
    r"|.*<.*\bcublas\w+<"  # an argument of a template is of cuBLAS's own types
)
# The names of kernels that NVIDIA's libraries are made of, whatever an extension holds.
_LIBRARY = re.compile(r"(\w+ )?(cublas|cudnn|cusparse|cusolver)")
# Torch's operators that may launch a library's product.
_PRODUCT = re.compile(
    r"mm|mv|matmul|dot|conv|linear|attention|rnn|lstm|gru|cudnn|einsum|outer|addr|ger|dist|solve"
    r"|cholesky|inv|svd|eig|qr|lu_|fft|householder|linalg|triangular|ldl|norm|embedding_bag"
)
_WORD = re.compile(r"\w+")
_ANONYMOUS = "(anonymous namespace)"


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """All launches of one device function in a call, by the operator of torch that made them."""

    name: str
    """Name of the kernel, readable (``void scale<float>(float*, int)``) or as Triton gives it."""
    operator: str
    """Innermost operator of torch that launched the function; empty if none did."""
    launches: int
    ms: float
    """Milliseconds of all these launches together."""


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """Device functions that ran on a GPU in one call, with their times."""

    kernels: tuple[DeviceKernel, ...]
    spans: tuple[tuple[tuple[int, ...], float], ...]
    """Milliseconds in which exactly certain functions ran side by side, by their indices."""


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """GPU time of one call by owner: the candidate's kernels, torch's, or other libraries'."""

    own_ms: float
    """Milliseconds of the custom kernels."""
    torch_ms: float
    """Milliseconds of kernels that torch's operators launched, those of products included."""
    library_ms: float
    """Milliseconds of libraries' kernels that no operator of torch launched."""
    own_busy_ms: float
    """Milliseconds of those custom kernels that take longer than a launch that does little."""
    library_busy_ms: float
    """Milliseconds of those libraries' kernels that take longer than a launch that does little."""
    product_ms: float = 0.0
    """Milliseconds of kernels that torch's products launched: matrix products, convolutions and
    attention."""
    libraries: tuple[str, ...] = ()
    """Names of the libraries' kernels, longest first."""

    @property
    def others_ms(self) -> float:
        """Milliseconds of kernels that are not custom."""
        return self.torch_ms + self.library_ms

    @property
    def total_ms(self) -> float:
        """Milliseconds in which any kernel ran."""
        return self.own_ms + self.others_ms

    @property
    def own(self) -> float:
        """Custom kernels' share of the call's time on the device."""
        return self.own_ms / self.total_ms if self.total_ms else 0.0

    @property
    def beside_products(self) -> float:
        """Custom kernels' share of the time beside torch's products; 0 for empty launches alone."""
        others_ms = self.others_ms - self.product_ms
        return self.own_busy_ms / (self.own_busy_ms + others_ms) if self.own_busy_ms else 0.0

    @property
    def beside_libraries(self) -> float:
        """Custom kernels' share of the time beside libraries; empty launches are left out."""
        if not self.library_busy_ms:
            return 1.0
        return self.own_busy_ms / (self.own_busy_ms + self.library_busy_ms)


class OwnNames:
    """Names of device functions that a candidate's own text was compiled to.

    Args:
        source: The candidate's text.
        compiled: Names of the kernels that were launched and that Triton or NVRTC compiled.
        functions: Symbols of the extensions' device functions (`device_functions`).
    """

    def __init__(
        self, source: str, compiled: Iterable[str] = (), functions: Iterable[str] = ()
    ) -> None:
        plain = _COMMENT.sub(" ", source)
        asks = "nvrtc" in plain.lower() or "_compile_kernel" in plain
        nvrtc = _DECLARED.findall(plain) if asks else ()
        self._declared = frozenset(word for text in nvrtc for word in _WORD.findall(text))
        self._words = frozenset(_WORD.findall(plain))
        self._compiled = frozenset(compiled)
        # The driver gives the mangled names of functions in C++.
        mangled = (name for name in self._compiled if name.startswith("_Z"))
        self._functions = frozenset((*functions, *mangled))

    def __contains__(self, name: str) -> bool:
        if _GENERATED.match(name):
            return False
        of_library = _LIBRARY.match(name) is not None
        if name in self._compiled:
            return not of_library or name in self._words
        path = _path(name)
        if not path or of_library:
            return False
        # Namespaces of torch and of NVIDIA hold functions with common names, so each part of a name
        # must stand in the text, the last one as that of a kernel; or the extension holds an
        # instance of it.
        if path[-1] in self._declared and self._words.issuperset(path):
            return True
        parts = [f"{len(part)}{part}" for part in path]
        return any(all(part in symbol for part in parts) for symbol in self._functions)


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


def read_run(seen: dict[str, Any]) -> DeviceRun | None:
    """Return what a candidate claims to have run, checked; None without any kernel.

    Where it does not tell what ran side by side, each kernel counts as if it ran alone.
    """
    listed, together = seen.get("device_kernels"), seen.get("device_spans")
    kernels: dict[int, DeviceKernel] = {}
    for place, entry in enumerate(listed[:_MOST] if isinstance(listed, list) else ()):
        match entry:
            case [str(name), str(operator), int(launches), (int() | float()) as ms]:
                if launches > 0 and math.isfinite(ms) and ms >= 0:
                    kernels[place] = DeviceKernel(name, operator, launches, float(ms))
    new = {place: number for number, place in enumerate(kernels)}
    spans = []
    for entry in together[:_MOST_SPANS] if isinstance(together, list) else ():
        match entry:
            case [list(places), (int() | float()) as ms] if math.isfinite(ms) and ms >= 0:
                known = tuple(new[place] for place in places if type(place) is int and place in new)
                if known:
                    spans.append((known, float(ms)))
    if not kernels:
        return None
    found = tuple(kernels.values())
    alone = [((number,), kernel.ms) for number, kernel in enumerate(found)]
    return DeviceRun(found, tuple(spans or alone))


def device_share(ran: DeviceRun, own: OwnNames, *, captured: bool = False) -> DeviceShare:
    """Return a call's GPU time by owner: the candidate's kernels, torch's, or other libraries'.

    Time in which several kernels ran side by side is a library's if one of them is, and else
    torch's if one of them is, of its other operators rather than of its products.

    Args:
        ran: Device functions that ran in a call.
        own: The candidate's names.
        captured: Whether the call replays a graph whose capture was watched: the operators in it
            were counted then, so what is not the candidate's is torch's.
    """
    owners = [_owner(kernel, own, captured) for kernel in ran.kernels]
    working = {n for n, k in enumerate(ran.kernels) if k.ms > _EMPTY_MS * k.launches}
    times, busy = dict.fromkeys(_OWNERS, 0.0), dict.fromkeys(_OWNERS, 0.0)
    for places, ms in ran.spans:
        times[_first_owner(places, owners)] += ms
        if at_work := working.intersection(places):
            busy[_first_owner(at_work, owners)] += ms
    libraries: dict[str, float] = {}
    for kernel, owner in zip(ran.kernels, owners, strict=True):
        if owner == "library":
            libraries[kernel.name] = libraries.get(kernel.name, 0.0) + kernel.ms
    return DeviceShare(
        times["own"],
        times["torch"] + times["product"],
        times["library"],
        busy["own"],
        busy["library"],
        times["product"],
        tuple(sorted(libraries, key=lambda name: -libraries[name])),
    )


def _first_owner(places: Iterable[int], owners: list[str]) -> str:
    """Return the owner of time in which several kernels ran side by side."""
    return min((owners[place] for place in places), key=_OWNERS.index)


def _owner(kernel: DeviceKernel, own: OwnNames, captured: bool) -> str:
    if kernel.operator.startswith(_TORCH) and not _is_foreign(kernel):
        return "product" if is_product(kernel.operator.rpartition("::")[2]) else "torch"
    if kernel.name in own:
        return "own"
    return "torch" if captured and not kernel.operator else "library"


def _is_foreign(kernel: DeviceKernel) -> bool:
    """Return True if a kernel was not launched by an operator of torch itself.

    An operator may free memory, whose deleter is code of the candidate.
    """
    if _GENERATED.match(kernel.name) or _LIBRARY.match(kernel.name):
        return not _PRODUCT.search(kernel.operator)
    return not computes(kernel.operator) and "at::native::" not in kernel.name
