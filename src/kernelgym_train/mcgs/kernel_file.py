"""`KernelFile`: the C++ or CUDA text and compiler flags in a kernel's module.

Contract: a module is understood if it calls ``load_inline`` once, its compiled text is one string
literal (in the call, or bound once to a name), and its flags are lists of string literals. That
text is ``cuda_sources`` where the call has it, ``cpp_sources`` otherwise. Any other module is
refused by a `UsageError` that says what is missing. `KernelFile.with_cpp` and `with_flags` change
only those parts of the text. The module is parsed and never run. Pure.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections import Counter
from dataclasses import dataclass

from kernelgym import UsageError
from kernelgym.answers.python_source import UnreadableSource, read_python

_Span = tuple[int, int]
_MOST_DIGITS = 4300  # of a number that Python's `int` takes
_LONG_NUMBER = re.compile(rf"(?<!\d)\d{{{_MOST_DIGITS + 1}}}")


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A kernel's module, its C++ or CUDA text and its compiler flags."""

    source: str
    """Text of the module."""
    cpp: str
    """The C++ or CUDA text, as the compiler reads it."""
    flags: tuple[str, ...]
    """Flags in ``extra_cflags``; of a CUDA kernel, those in ``extra_cuda_cflags``."""
    link_flags: tuple[str, ...]
    """Flags in ``extra_ldflags``."""
    functions: tuple[str, ...] = ()
    """Names in ``functions``; empty if the C++ binds its functions itself, the list is no literal,
    or the text is CUDA, whose functions are declared in another text."""

    def with_cpp(self, cpp: str) -> KernelFile:
        """Return a Python module's source with its C++ or CUDA source replaced by `cpp`."""
        if cpp == self.cpp:
            return self
        found = _call_of(self.source)
        return read_kernel_file(_spliced(self.source, [(found.cpp, _literal(cpp))]))

    def with_flags(self, flags: tuple[str, ...]) -> KernelFile:
        """Return the module with other compiler flags.

        The flag of OpenMP is given to the linker as well.
        """
        link = self.link_flags
        if "-fopenmp" in flags and "-fopenmp" not in link:
            link = (*link, "-fopenmp")
        if (flags, link) == (self.flags, self.link_flags):
            return self
        found = _call_of(self.source)
        edits: list[tuple[_Span, str]] = []
        added: list[str] = []
        for argument, values in zip(found.lists, (flags, link), strict=True):
            text = f"[{', '.join(map(_quoted, values))}]"
            if (span := found.lists[argument][1]) is not None:
                edits.append((span, text))
            elif values:
                added.append(f"{argument}={text}")
        if added:
            edits.append(added_argument(self.source, (found.start, found.stop), ", ".join(added)))
        return read_kernel_file(_spliced(self.source, edits))

    def choosing(self, cpp: str, settings: int, chosen: int) -> KernelFile:
        """Return the module with a C++ text of many settings, which calls one of them.

        Args:
            cpp: C++ text that defines ``NAME_NUMBER`` for each of `functions` and each setting.
            settings: Number of settings.
            chosen: Number of the setting that the module calls.
        """
        found = _call_of(self.source)
        assert found.functions is not None  # as `functions` is not empty
        every = [f"{name}_{number}" for name in self.functions for number in range(settings)]
        names = ", ".join(map(_quoted, self.functions))
        before = (
            '(lambda made, setting: __import__("types").SimpleNamespace(**{name: '
            f'getattr(made, f"{{name}}_{{setting}}") for name in ({names},)}}))('
        )
        edits = [
            (found.cpp, _literal(cpp)),
            (found.functions, f"[{', '.join(map(_quoted, every))}]"),
            ((found.start, found.start), before),
            ((found.stop, found.stop), f", {chosen})"),
        ]
        return KernelFile(_spliced(self.source, edits), cpp, self.flags, self.link_flags)


def read_kernel_file(source: str) -> KernelFile:
    """Read a kernel's module.

    Raises:
        UsageError: If it is not Python, or builds no extension that a search can change.
    """
    found = _call_of(source)
    flags, link_flags = (words for words, _ in found.lists.values())
    return KernelFile(source, found.text, flags, link_flags, found.names)


class _Call:
    """The only call of ``load_inline`` in a kernel's module.

    Places are offsets into the module's UTF-8 bytes.
    """

    def __init__(self, source: str) -> None:
        tree = read_python(source)
        if isinstance(tree, UnreadableSource):
            raise UsageError(f"the kernel is not a Python module: {tree.message}")
        self._starts = [0]
        for line in source.encode().split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name | ast.Attribute)
            and ast.unparse(node.func).rpartition(".")[2] == "load_inline"
        ]
        if len(calls) != 1:
            raise UsageError(
                f"a C++ or CUDA kernel to search calls load_inline once, this one {len(calls)} "
                "times"
            )
        (call,) = calls
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        self._bound = _bound_once(tree)
        device = "cuda_sources" in given
        text = "cuda_sources" if device else "cpp_sources"
        self.text, self.cpp = self._cpp(text, given.get(text))
        self.lists = {
            argument: self._list(argument, given.get(argument))
            for argument in ("extra_cuda_cflags" if device else "extra_cflags", "extra_ldflags")
        }
        """(flags, place of the list) by argument; no place if the call has no such argument."""
        functions = None if device else given.get("functions")
        self.names, self.functions = self._functions(functions)
        self.start, self.stop = self._span(call)

    def _functions(self, node: ast.expr | None) -> tuple[tuple[str, ...], _Span | None]:
        """Return the names of bound functions, and where they are listed."""
        node = self._value(node)
        given = _literals(node)
        names = (given,) if isinstance(given, str) else given
        return (tuple(names), self._span(node)) if node is not None and names else ((), None)

    def _span(self, node: ast.expr) -> _Span:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _value(self, node: ast.expr | None) -> ast.expr | None:
        if isinstance(node, ast.Name):
            return self._bound.get(node.id)
        return node

    def _cpp(self, argument: str, node: ast.expr | None) -> tuple[str, _Span]:
        """Return the C++ or CUDA text in an argument of ``load_inline``, and its place."""
        node = self._value(node)
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 1:
            node = self._value(node.elts[0])
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            raise UsageError(
                f"a kernel to search gives load_inline one string literal as {argument}, or a "
                "name that is bound to one once"
            )
        if any("\ud800" <= mark <= "\udfff" for mark in node.value):
            raise UsageError(
                f"{argument} of load_inline holds half of a character (a lone "
                "surrogate), which no compiler can read; remove it"
            )
        if _LONG_NUMBER.search(node.value):
            raise UsageError(
                f"{argument} of load_inline holds a number of more than {_MOST_DIGITS} digits, "
                "which the moves' rules cannot read; shorten it"
            )
        return node.value, self._span(node)

    def _list(self, argument: str, node: ast.expr | None) -> tuple[tuple[str, ...], _Span | None]:
        """Return the words in an argument that lists string literals, and the list's place."""
        node = self._value(node)
        if node is None:
            return (), None
        texts = _literals(node)
        if not isinstance(texts, list):
            raise UsageError(f"{argument} of load_inline must be a list of string literals")
        return tuple(word for text in texts for word in text.split()), self._span(node)


def _literals(node: ast.expr | None) -> str | list[str] | None:
    """Return a string literal, or those of a list or tuple; None for any other expression."""
    try:
        found = None if node is None else ast.literal_eval(node)
    except ValueError:
        return None
    if isinstance(found, list | tuple) and all(isinstance(each, str) for each in found):
        return [*found]
    return found if isinstance(found, str) else None


@functools.lru_cache(maxsize=1024)
def _call_of(source: str) -> _Call:
    return _Call(source)


def _bound_once(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values of the names that the module assigns exactly once."""
    stores = Counter(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and stores[target.id] == 1
    }


def added_argument(source: str, call: _Span, text: str) -> tuple[_Span, str]:
    """Return the place of a new last argument of a call, and the text to insert there.

    Several such changes of one call can be made together.

    Args:
        source: Text of the module.
        call: First byte of the call in UTF-8, and the byte after it.
        text: Text of the argument.
    """
    written = source.encode()[call[0] : call[1]].decode()
    words = [
        each
        for each in tokenize.generate_tokens(io.StringIO(written).readline)
        if each.string.strip() and each.type != tokenize.COMMENT
    ]
    last = words[-2]  # before the call's bracket
    row, column = last.end
    before = sum(len(line) + 1 for line in written.split("\n")[: row - 1]) + column
    at = call[0] + len(written[:before].encode())
    if last.string == "(":
        return (at, at), f"{text},"
    return (at, at), f" {text}," if last.string == "," else f", {text}"


def _spliced(source: str, edits: list[tuple[_Span, str]]) -> str:
    data = source.encode()
    for (start, end), text in sorted(edits, key=lambda edit: edit[0], reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data.decode()


def _literal(text: str) -> str:
    """Return a Python string literal, without escapes where possible."""
    if '"""' in text or text.endswith('"') or "\r" in text or "\0" in text:
        return repr(text)
    prefix = "r" if "\\" in text and not text.endswith("\\") else ""
    return repr(text) if "\\" in text and not prefix else f'{prefix}"""{text}"""'


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
