"""Faster launches of interpreted kernels: patching the language, and finding a kernel's first line.

Installed by `switch.py`.

Loaded by path in the zygote: standard library and triton only.
"""

from __future__ import annotations

import inspect
import linecache
from types import CodeType
from typing import Any


def _patching(original: Any) -> Any:
    """Cache the builtins of the language and their patches between launches.

    Triton searches the whole language for builtins at each launch.
    """
    from triton.language import core
    from triton.runtime import interpreter

    known: dict[tuple[Any, int], tuple[list[str], list[Any], dict[str, Any], dict[str, Any]]] = {}
    wrapped: dict[tuple[Any, str], tuple[Any, Any]] = {}
    is_builtin, mark, scopes = core.is_builtin, core.TRITON_BUILTIN, interpreter._LangPatchScope
    shells = _inner(core.builtin), _inner(core._tensor_member_fn)

    def ours(pkg: Any, name: str, member: Any) -> Any:
        before, made = wrapped.get((pkg, name), (None, None))
        if before is not member:
            made = _with_semantic(_core_of(member, shells), interpreter.interpreter_semantic)
            wrapped[pkg, name] = member, made
        return made

    def _patch_builtin(pkg: Any, builder: Any, scope: Any) -> None:
        members = vars(pkg)
        # A kernel that adds names to the language, or removes some, changes its length.
        key = pkg, len(members)
        if key not in known:
            names = [name for name, member in inspect.getmembers(pkg) if is_builtin(member)]
            before = {name: getattr(pkg, name) for name in names}
            after = {name: ours(pkg, name, member) for name, member in before.items()}
            known[key] = names, [*before.values()], before, after
        names, own, before, after = known[key]
        now = [members.get(name) for name in names]
        if now == [*after.values()]:  # still patched: `_restoring` leaves classes patched
            return
        if now == own and members.__class__ is dict and scope.__class__ is scopes:
            members.update(after)
            scope._changes.append((members, None, before))
            return
        for name in names:
            member = getattr(pkg, name)
            if getattr(member, mark, False):  # not patched already
                scope.set_attr(pkg, name, ours(pkg, name, member))

    return _patch_builtin


def _setting(original: Any) -> Any:
    """Skip setting a class attribute that an earlier launch has set already."""

    def set_attr(self: Any, obj: Any, name: str, value: Any) -> None:
        if obj.__class__ is type:
            made = _code_of(value)
            if made is not None and made is _code_of(vars(obj).get(name)):
                return
        original(self, obj, name, value)

    return set_attr


def _restoring(original: Any) -> Any:
    """Leave classes patched after a launch: other code hardly uses them.

    Every change of a class empties Python's caches for lookups in it.
    """
    from triton.runtime import interpreter

    missing = interpreter._MISSING

    def restore(self: Any) -> None:
        while self._changes:
            obj, name, before = self._changes.pop()
            if name is None:
                obj.update(before)
            elif obj.__class__ is type:
                continue
            elif before is missing:
                delattr(obj, name)
            else:
                setattr(obj, name, before)

    return restore


def _was_made_by(maker: str, function: Any) -> bool:
    return getattr(function, "__qualname__", "").startswith(f"{maker}.<locals>.")


def _code_of(value: Any) -> CodeType | None:
    """Return the code object of a patch that Triton makes at each launch; None otherwise."""
    function = value.fget if value.__class__ is property else value
    if _was_made_by("_patch_lang_core", function) or _was_made_by("_patch_lang_tensor", function):
        code: CodeType | None = getattr(function, "__code__", None)
        return code
    return None


def _inner(decorator: Any) -> CodeType:
    """Return the code object of the wrapper that a decorator makes."""
    consts = decorator.__code__.co_consts
    return next(c for c in consts if isinstance(c, CodeType) and c.co_name == "wrapper")


def _core_of(member: Any, shells: tuple[CodeType, CodeType]) -> Any:
    """Return a builtin of Triton's language without the wrappers that check its use."""
    while (code := getattr(member, "__code__", None)) in shells and code is not None:
        cells = dict(zip(code.co_freevars, member.__closure__ or (), strict=True))
        member = cells["fn"].cell_contents
    return member


def _with_semantic(member: Any, semantic: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return member(*args, **kwargs)

    return call


def _finding_lines(original: Any) -> Any:
    """Replace Triton's search for a function's first line, which reads the file again."""

    def _get_jit_fn_file_line(self: Any) -> Any:
        code = getattr(self.fn, "__code__", None)
        if code is None or hasattr(self.fn, "__wrapped__"):
            return original(self)
        lines = linecache.getlines(code.co_filename, self.fn.__globals__)
        first = code.co_firstlineno
        for number, line in enumerate(lines[first - 1 :], first):
            start = line.strip()
            if start.startswith("def "):
                return code.co_filename, number
            if number == first and not start.startswith("@"):
                break
        return original(self)

    return _get_jit_fn_file_line


TEXTS = {
    "_LangPatchScope": "1b26f629cd7367a8",
    "_patch_lang": "e5beeba74ada4829",
    "_patch_lang_core": "72864625d91b5cd0",
    "_patch_lang_tensor": "1475c3a06f26820e",
    "_patch_reduce_scan": "ff294418b913c41c",
    "_patch_builtin": "3c21c270fa61fb24",
    "_patch_attr": "e0c1b7d65a2463cd",
    "_tensor_member_fn": "27168bd61147036e",
    "FunctionRewriter": "7cc012dec45eba64",
    "JITCallable.__init__": "6eecfb5e97e25d59",
    "builtin": "f5841ebc131387be",
    "get_jit_fn_file_line": "c8a1a64ccc7d0cd0",
}
"""Start of the SHA-256 of each source text of Triton that the replacements rely on, by name."""

_LANGUAGE = [
    *("_patch_lang", "_patch_lang_core", "_patch_lang_tensor", "_patch_builtin"),
    *("_patch_attr", "_patch_reduce_scan", "_LangPatchScope"),
]

MADE = {
    "_patch_builtin": (_patching, [*_LANGUAGE, "builtin", "_tensor_member_fn"]),
    "_LangPatchScope.set_attr": (_setting, _LANGUAGE),
    "_LangPatchScope.restore": (_restoring, _LANGUAGE),
    "FunctionRewriter._get_jit_fn_file_line": (
        _finding_lines,
        ["FunctionRewriter", "get_jit_fn_file_line", "JITCallable.__init__"],
    ),
}
"""Functions that make a replacement, with the names of the texts it relies on."""
