"""What a candidate's process reports on a watched call, read with care: all of it may be forged.

`untrusted/watch/tracer.py` makes the reports. Not here: what follows from them for a kernel, which
`kernelgym.judge.evidence.evidence` says.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from kernelgym.judge.compiling.library_symbols import computes
from kernelgym.judge.evidence.torch_share import TorchWork
from kernelgym.types import KernelTime, Profile

_TRANSFER = 0.01  # of the bytes that the reference's operators move
_SMALL_TRANSFER_BYTES = 1024
_EITHER = ("compiled", "hidden", "crossed", "host_transfers", "library", "handed")


def read_profile(seen: dict[str, Any]) -> Profile | None:
    """Return the launch times that the candidate claims, checked; None if unreadable."""
    call_ms, listed = number(seen.get("call_ms")), seen.get("kernels")
    kernels = []
    for entry in listed[:16] if isinstance(listed, list) else ():
        match entry:
            case [str(name), [calls, ms]] if number(calls) >= 1:
                text = name[:80].encode("utf-8", "replace").decode("utf-8")
                kernels.append(KernelTime(text, int(number(calls)), round(number(ms), 6)))
    return Profile(round(call_ms, 6), tuple(kernels)) if call_ms > 0 and kernels else None


def in_later_calls(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the report on a call that replays the graphs which the first call captured.

    Work of the first call that only prepared the capture is left out.
    """
    work = claimed_work(second) + claimed_work(first.get("in_graphs"))
    again = {name: second.get(name) or first.get(name) for name in _EITHER}
    ran = [seen.get("uncounted", []) for seen in (first, second)]
    known = [*ran[0], *ran[1]] if all(isinstance(names, list) for names in ran) else None
    return {**first, **dataclasses.asdict(work), **again, "uncounted": known}


def claimed_work(seen: Any) -> TorchWork:
    """Return the work of torch's operators that a candidate reports."""
    said = seen if isinstance(seen, dict) else {}
    products, elements = number(said.get("products")), number(said.get("elements"))
    moved = _numbers(said.get("moved"))
    return TorchWork(_numbers(said.get("bytes")), products, elements, moved=moved)


def work_on_host(seen: dict[str, Any], work: TorchWork, name: str) -> str:
    """Return a complaint if much of the call's data left PyTorch for the host; '' otherwise."""
    instead = f"compute in the {name}, and hand it tensors; a few numbers may be read in Python"
    library = seen.get("library")
    if isinstance(library, str) and library:
        return f"{library[:60]} of a numeric library is called through ctypes: {instead}"
    handed = seen.get("handed")
    if isinstance(handed, list) and handed:
        given = ", ".join(map(str, handed[:5]))[:200]
        return (
            f"the extension is handed what can compute in its place ({given}), out of sight of the "
            "judge: hand it tensors and numbers, and compute in the extension"
        )
    crossed = number(seen.get("crossed"))
    if crossed <= max(_SMALL_TRANSFER_BYTES, _TRANSFER * sum(work.bytes.values())):
        return ""
    ways = seen.get("host_transfers")
    named = ", ".join(map(str, ways))[:200] if isinstance(ways, list) else ""
    return f"values of tensors leave PyTorch while the output is computed ({named}): {instead}"


def uncounted_work(seen: dict[str, Any]) -> str:
    """Return a complaint if torch's operators ran where they are not counted; '' otherwise."""
    names = seen.get("uncounted", [])
    if isinstance(names, list):
        found = [str(name)[:80] for name in names[:50] if computes(str(name))]
        if not found:
            return ""
    else:
        found = ["the calls of torch's operators cannot be recorded"]
    return (
        f"torch's operators run where they are not counted ({', '.join(found)[:300]}), such as in "
        "threads of an extension or out of sight of dispatch modes: write that computation in the "
        "custom kernel, or call torch's operators in the calling thread, where they are counted"
    )


def _numbers(value: Any) -> dict[str, float]:
    named = value if isinstance(value, dict) else {}
    return {str(name): number(each) for name, each in named.items()}


def number(value: Any) -> float:
    """Return a number that the candidate sent, or 0 if unusable."""
    if type(value) not in (int, float):
        return 0.0
    try:
        read = float(value)
    except OverflowError:
        return 0.0
    return read if math.isfinite(read) and read >= 0 else 0.0
