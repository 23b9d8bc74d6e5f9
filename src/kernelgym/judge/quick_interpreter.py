"""Triton's interpreter, computing the same in less time.

Most of what an interpreted launch takes is spent around NumPy: types and shapes built anew for
every intermediate value, the whole language looked through for what is to be patched, and an
overflow check whose result is thrown away unless debugging is on. Here some functions are replaced
by ones that remember, or that see first that there is nothing to do; whatever is out of the
ordinary goes to Triton's own. A function whose text is not the one that its replacement was written
for (another version of Triton) stays as it is.

Loaded by path in the zygote: standard library and triton only. No boundary, as `accesses.py`.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["quicken"]

_TEXTS = {
    "TritonSemantic.binary_op_sanitize_overflow_impl": "1ad65a10738d191c",
    "TritonSemantic.device_assert": "903c1a211e408720",
    "TritonSemantic.broadcast_impl_value": "9b7949138c0dd2c1",
    "InterpretedFunction.__call__": "f2446df462640049",
    "_patch_lang": "e5beeba74ada4829",
    "_patch_lang_core": "72864625d91b5cd0",
    "_patch_lang_tensor": "1475c3a06f26820e",
    "_get_np_dtype": "8f20d41e3207891a",
    "_patch_builtin": "3c21c270fa61fb24",
    "block_type.__init__": "403f4b016ec5c2c3",
    "tensor.__init__": "d9b043b5c9897657",
    "tuple.__init__": "404706e1c76b6342",
}
"""What each function's text hashes to: of those replaced, and of those relied upon."""


def quicken() -> list[str]:
    """Replace functions of Triton's interpreter; return the names of those left as they are."""
    from triton.language import core, semantic
    from triton.runtime import interpreter

    owners = {
        "TritonSemantic": semantic.TritonSemantic,
        "block_type": core.block_type,
        "tensor": core.tensor,
        "tuple": core.tuple,
        "InterpretedFunction": interpreter.InterpretedFunction,
        "": interpreter,
    }
    made: dict[str, Callable[[Any], Any]] = {
        "TritonSemantic.binary_op_sanitize_overflow_impl": _sanitizing,
        "TritonSemantic.broadcast_impl_value": _broadcasting,
        "_get_np_dtype": _converting,
        "_patch_builtin": _patching,
        "_patch_lang": _patching_once,
        "block_type.__init__": _block_types,
        "tensor.__init__": _tensors,
    }
    relies_on = {
        "TritonSemantic.binary_op_sanitize_overflow_impl": ["TritonSemantic.device_assert"],
        "block_type.__init__": ["tuple.__init__"],
        "tensor.__init__": ["tuple.__init__"],
        "_patch_lang": ["_patch_lang_core", "_patch_lang_tensor", "InterpretedFunction.__call__"],
    }

    def find(name: str) -> Any:
        owner, _, attribute = name.rpartition(".")
        return getattr(owners[owner], attribute, None)

    left = []
    for name, make in made.items():
        if all(_is_known(find(each)) for each in (name, *relies_on.get(name, ()))):
            owner, _, attribute = name.rpartition(".")
            setattr(owners[owner], attribute, make(find(name)))
        else:
            left.append(name)
    return left


def _is_known(function: Any) -> bool:
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        return False
    name = getattr(function, "__qualname__", "")
    return hashlib.sha256(text.encode()).hexdigest()[:16] == _TEXTS.get(name)


def _sanitizing(original: Any) -> Any:
    """An overflow is computed, compared and then told to nobody, unless debugging is on."""
    builder = sys.modules["triton.runtime.interpreter"].InterpreterBuilder

    def binary_op_sanitize_overflow_impl(self: Any, lhs: Any, rhs: Any, binary_op: Any) -> Any:
        if type(self.builder) is builder and not self.builder.options.debug:
            return None
        return original(self, lhs, rhs, binary_op)

    return binary_op_sanitize_overflow_impl


def _broadcasting(original: Any) -> Any:
    """Blocks of one shape need no broadcasting."""

    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        left, right = lhs.type, rhs.type
        if left.is_block() and right.is_block():
            if left.shape.values == right.shape.values:
                return lhs, rhs
        elif not left.is_block() and not right.is_block():
            return lhs, rhs
        return original(self, lhs, rhs)

    return broadcast_impl_value


def _converting(original: Any) -> Any:
    """Types are translated through a table that is built anew each time."""
    from triton.language import core

    scalar, block = core.dtype, core.block_type
    known: dict[str, Any] = {}

    def _get_np_dtype(tt_dtype: Any) -> Any:
        plain = tt_dtype.element_ty if type(tt_dtype) is block else tt_dtype
        if type(plain) is not scalar:
            return original(tt_dtype)
        found = known.get(plain.name)
        if found is None:
            found = known[plain.name] = original(tt_dtype)
        return found

    return _get_np_dtype


def _patching(original: Any) -> Any:
    """The language is looked through for builtins at each launch: remember where they were."""
    from triton.language import core
    from triton.runtime import interpreter

    found: dict[tuple[Any, int], list[str]] = {}
    wrapped: dict[tuple[Any, str], tuple[Any, Any]] = {}
    is_builtin, mark = core.is_builtin, core.TRITON_BUILTIN

    def _patch_builtin(pkg: Any, builder: Any, scope: Any) -> None:
        # Whoever adds to the language, or takes from it, changes its length.
        key = pkg, len(vars(pkg))
        if key not in found:
            found[key] = [name for name, member in inspect.getmembers(pkg) if is_builtin(member)]
        for name in found[key]:
            member = getattr(pkg, name)
            if not getattr(member, mark, False):
                continue  # patched already
            before, ours = wrapped.get((pkg, name), (None, None))
            if before is not member:
                ours = _with_semantic(member, interpreter.interpreter_semantic)
                wrapped[pkg, name] = member, ours
            scope.set_attr(pkg, name, ours)

    return _patch_builtin


def _patching_once(original: Any) -> Any:
    """A kernel that calls another has the language patched again, with the same functions."""
    from triton.language import core
    from triton.runtime import interpreter

    languages, scope = (sys.modules["triton.language"], core), interpreter._LangPatchScope

    def _patch_lang(fn: Any) -> Any:
        visible = set(map(id, fn.__globals__.values()))
        seen = [language for language in languages if id(language) in visible]
        if seen and all(
            _was_made_by("_patch_lang_core", language.range)
            and _was_made_by("_patch_lang_tensor", vars(language.tensor).get("__index__"))
            for language in seen
        ):
            return scope()
        return original(fn)

    return _patch_lang


def _was_made_by(maker: str, function: Any) -> bool:
    return getattr(function, "__qualname__", "").startswith(f"{maker}.<locals>.")


def _with_semantic(member: Any, semantic: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return member(*args, **kwargs)

    return call


def _block_types(original: Any) -> Any:
    """The parts of a type that depend on its shape alone are made once for each shape."""
    from triton.language import core

    known: dict[tuple[int, ...], tuple[Any, int, str]] = {}
    several = core.tuple

    def __init__(self: Any, element_ty: Any, shape: Any) -> None:
        values = shape.values if type(shape) is several else shape
        key = tuple(values) if type(values) is list else ()
        for size in key:
            if type(size) is not int:
                key = ()
        if not key:
            original(self, element_ty, shape)
            return
        parts = known.get(key)
        if parts is None:
            original(self, element_ty, shape)
            known[key] = self.shape.type, self.numel, str(self.shape)
            return
        self.element_ty = element_ty
        self.shape = several(values, parts[0])
        self.numel = parts[1]
        self.name = f"<{parts[2]}, {element_ty}>"

    return __init__


def _tensors(original: Any) -> Any:
    """So are a tensor's."""
    from triton.language import core

    known: dict[tuple[int, ...], tuple[list[Any], Any, Any]] = {}
    block, several = core.block_type, core.tuple

    def __init__(self: Any, handle: Any, type: Any) -> None:
        if type.__class__ is block:
            key = tuple(type.shape.values)
        elif type.is_block():
            original(self, handle, type)
            return
        else:
            key = ()
        parts = known.get(key)
        if parts is None:
            original(self, handle, type)
            if all(size.__class__ is int for size in key):
                known[key] = list(self.shape.values), self.shape.type, self.numel
            return
        self.handle = handle
        self.numel = parts[2]
        self.type = type
        self.dtype = type.scalar
        self.shape = several(parts[0], parts[1])

    return __init__
