"""Cuts torch's header of the tensor down to the methods that a source can call.

About half of the text that a compiler reads for ``ATen/core/Tensor.h`` are some 790 methods and the
headers of their operators. `tensor_body` copies the installed header without the methods whose
names occur neither in the kernel nor among the calls in other headers.

Contract:

- the remaining text is torch's, word for word, so layout, overloads and ABI are torch's;
- all overloads of a name are kept or left out together, so the compiler chooses the same overload
  as with the whole header;
- a header that does not have the expected form is used whole.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from kernelgym.judge.compiling.include_names import included_names

__all__ = ["TENSOR_BODY", "tensor_body"]

TENSOR_BODY = "ATen/core/TensorBody.h"
_ALL_OPERATORS = "#include <ATen/MethodOperators.h>\n"
# The form that torchgen writes: a declaration has one line, a definition three after a comment.
_DEFINITION = re.compile(
    r"^(?:// aten::[^\n]*\n)?inline [^\n]*? Tensor::(\w+)\([^\n]*\{\n"
    r" *return at::_ops::(\w+)::call\([^\n]*\n\}\n",
    re.M,
)
_DECLARATION = re.compile(r"^ {2}[\w:<>&, *]*[ &](\w+)\([^\n]*\) const(?: &)?;\n", re.M)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class _Body:
    """The header's text, and the operator headers that each removable method needs."""

    text: str
    operators: dict[str, frozenset[str]]
    used_within: frozenset[str]


def tensor_body(include: Path, names: frozenset[str]) -> str | None:
    """Return the text of ``ATen/core/TensorBody.h`` with only the methods in `names`.

    Args:
        include: torch's folder of headers.
        names: All words of the sources, and all names that other headers call.

    Returns:
        The text, or None if the installed header has an unexpected form and must be used whole.
    """
    body = _read_body(include)
    if body is None:
        return None
    kept = (names | body.used_within) & body.operators.keys()
    needed = sorted(set().union(*(body.operators[name] for name in kept)))
    includes = "#include <ATen/core/ATen_fwd.h>\n"
    includes += "".join(f"#include <ATen/ops/{name}_ops.h>\n" for name in needed)

    def keep(match: re.Match[str]) -> str:
        name = match[1]
        return match[0] if name in kept or name not in body.operators else ""

    text = _DEFINITION.sub(keep, _DECLARATION.sub(keep, body.text))
    return text.replace(_ALL_OPERATORS, includes)


@functools.lru_cache(maxsize=2)
def _read_body(include: Path) -> _Body | None:
    try:
        text = (include / TENSOR_BODY).read_text()
    except OSError:
        return None
    listed = included_names((include / "ATen/MethodOperators.h").read_text())
    known = {name[len("ATen/ops/") : -len("_ops.h")] for name in listed if name.endswith("_ops.h")}
    operators: dict[str, set[str]] = {}
    for method, operator in _DEFINITION.findall(text):
        header = _header_of(operator, known)
        if header is None:
            return None
        operators.setdefault(method, set()).add(header)
    declared = [match[1] for match in _DECLARATION.finditer(text)]
    if _ALL_OPERATORS not in text or not operators or not operators.keys() <= set(declared):
        return None
    rest = _COMMENT.sub(" ", _DECLARATION.sub("", _DEFINITION.sub("", text)))
    frozen = {method: frozenset(headers) for method, headers in operators.items()}
    return _Body(text, frozen, frozenset(_WORD.findall(rest)))


def _header_of(operator: str, known: set[str]) -> str | None:
    """Return the name of an operator's header: the operator's without the overload's."""
    for prefix in ("", "__", "__i"):  # __and__ and __iand__ are in and_ops.h
        name = operator.removeprefix(prefix)
        for end in range(len(name), 0, -1):
            if name[end : end + 1] in ("", "_") and name[:end] in known:
                return name[:end]
    return None
