"""Explains a compiler's complaints about an extension, in lines of the kernel's own source.

A complaint of nvcc about a template names a line of the header that declares it, and the kernel's
line only at the end of a list of instantiations. Such complaints are told by the kernel's line.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kernelgym.languages import Advice

_MOST_QUOTED = 8
_LONGEST_LINE = 300
_ERROR = re.compile(r"^(\S{1,500})\(\d+\): (?:catastrophic )?error(?: #[\w-]+)?: (.{1,1000})")
_REACHED_FROM = re.compile(r"\bat line (\d{1,6}) of (kernel(?:_(\d{1,4}))?\.cu)\b")
_OWN = re.compile(r"kernel(_\d{1,4})?\.(cu|cpp)")


def explained(log: str, arguments: Any, advice: Iterable[Advice] = ()) -> str:
    """Return a failed build's log, headed by the facts that its author needs.

    The head quotes the kernel's line for each complaint that names a header's, and adds the advice
    that fits the log. A log without either is returned as it is.

    Args:
        log: The compiler's output.
        arguments: The candidate's request, whose texts the complaints are about; need not be
            checked.
        advice: The language's advice on usual mistakes.
    """
    head = [*_told_by_own_lines(log, arguments)]
    head += [f"advice: {each.text}" for each in advice if re.search(each.complaint, log)]
    return "\n".join([*dict.fromkeys(head), log])


def _told_by_own_lines(log: str, arguments: Any) -> list[str]:
    """Return the complaints about headers, with the line of the source that each results from."""
    texts = arguments.get("cuda_sources") if isinstance(arguments, Mapping) else None
    sources = texts if isinstance(texts, list) else []
    told: list[str] = []
    message = ""
    for line in log.splitlines():
        if found := _ERROR.match(line):
            message = "" if _OWN.fullmatch(found[1]) else found[2]
        elif message and (reached := _REACHED_FROM.search(line)):
            number, index = int(reached[1]), int(reached[3] or 1) - 1
            quoted = _line(sources, index, number)
            told.append(f"{reached[2]}({number}): error: {message}\n    {quoted}".rstrip())
            message = ""
            if len(told) == _MOST_QUOTED:
                break
    return told


def _line(sources: list[Any], index: int, number: int) -> str:
    if not 0 <= index < len(sources) or not isinstance(sources[index], str):
        return ""
    lines = sources[index].splitlines()
    return lines[number - 1].strip()[:_LONGEST_LINE] if 0 < number <= len(lines) else ""
