"""Records what a GPU's compiler would be given for each interpreted launch.

A record names the kernel by its place in the module, and holds what Triton derives from a launch's
arguments: types, values of constants, options, and the globals that the kernel's text names. It
holds no tensor's values. `front_end.py`, in a process that runs no kernel's code, reads it.

A launch is recorded before it runs, whatever becomes of it. Not covered: launches past the first
256 distinct ones, and kernels that call the interpreter's own functions past Triton's launcher.

Loaded by path in the zygote: standard library and triton only. Code in the same process can forge
records; the trusted side takes the text of a kernel from the module that it was given itself.
"""

from __future__ import annotations

import ast
import enum
import inspect
import os
import textwrap
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_MOST = 256
_DEPTH = 8
_MOST_PROGRAMS = 2**31 - 1, 65535, 65535


class Recorder:
    """Records launches while it is on; one per process."""

    on = False

    def __init__(self) -> None:
        import triton
        from triton.runtime import interpreter

        files = os.path.abspath(triton.__file__), os.path.dirname(os.path.abspath(__file__))
        self._folders = tuple(os.path.dirname(file) + os.sep for file in files)
        self._language: list[tuple[Any, dict[str, Any]]] = []
        self._made: dict[int, tuple[Any, Any]] = {}  # by kernel: it, and what reads its arguments
        self._seen: dict[Any, tuple[Any, Any, Any, Any]] = {}
        self._raised: set[Any] = set()  # keys of `_seen`
        self._names: dict[int, frozenset[str]] = {}
        self._injected = vars(interpreter)
        kernel = interpreter.InterpretedFunction
        run = kernel.run

        def recorded(this: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if not self.on or warmup:
                return run(this, *args, grid=grid, warmup=warmup, **kwargs)
            self._check_language()
            key = self._note(this, args, kwargs)
            try:
                return run(this, *args, grid=_bounded(grid), warmup=False, **kwargs)
            except Exception:
                self._raised.add(key)
                raise

        kernel.run = recorded

    def begin(self) -> None:
        """Record launches from now on, and remember the names in Triton's language."""
        self._language = [(space, dict(vars(space))) for space in _spaces()]
        self.on = True

    def _check_language(self) -> None:
        """Refuse a launch in a language that is not Triton's."""
        for space, before in self._language:
            now = vars(space)
            for name, value in before.items():
                found = now.get(name)
                if (
                    found is not value
                    and not name.startswith("__")
                    and not _is_tritons(found, self._folders)
                ):
                    raise RuntimeError(
                        f"{space.__name__}.{name} is not Triton's own any more: a kernel may not "
                        "replace parts of Triton"
                    )

    def _note(self, kernel: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Record a launch if none like it is known; return the key of its kind of launch."""
        # The interpreter adds its own globals to the kernel's when it first runs one: names that a
        # kernel lacks on a GPU.
        names = kernel.fn.__globals__
        self._names.setdefault(id(names), frozenset(names))
        launch: tuple[Any, Any, Any, Any]
        try:
            known = self._made.get(id(kernel))
            if known is None:
                known = self._made[id(kernel)] = kernel, _binder(kernel)
            bound, kinds, options = known[1](*args, **kwargs)
            key: Any = id(kernel), _key(kinds), _key(sorted(options.items()))
            launch = kernel, bound, kinds, options
        except Exception as error:  # Triton's launcher refuses it on a GPU, too
            key = id(kernel), type(error)
            launch = kernel, {}, f"{type(error).__name__}: {error}", {}
        if key not in self._seen and len(self._seen) < _MOST:
            self._seen[key] = launch
        return key

    def report(self, source_file: str) -> dict[str, Any]:
        """Return the records so far, as plain data.

        Args:
            source_file: The kernel's module, whose text is left out.
        """
        writer = _Writer(source_file, self._names, self._injected)
        launches = [
            writer.launch(*each) | {"raised": key in self._raised}
            for key, each in self._seen.items()
        ]
        return {"functions": writer.functions, "launches": launches}


def _spaces() -> list[Any]:
    """Return the modules and classes whose names an interpreted kernel may use."""
    from triton import language
    from triton.language import core, math, semantic, standard
    from triton.runtime import interpreter

    return [
        *(language, core, math, semantic, standard, core.tensor, semantic.TritonSemantic),
        *(interpreter.InterpreterBuilder, interpreter.GridExecutor, interpreter.TensorHandle),
        *(interpreter.InterpretedFunction, interpreter.FunctionRewriter),
    ]


def _is_tritons(value: Any, folders: tuple[str, ...]) -> bool:
    """Return True if the code of a value is Python's, Triton's or the judge's.

    The interpreter does not always take back what it has put in the place of the language's.
    """
    for name in ("fget", "fn", "func"):
        value = getattr(value, name, value)
    if isinstance(value, BuiltinFunctionType):  # `print`, for one
        return value.__module__ == "builtins"
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(folders)


def _bounded(grid: Any) -> Any:
    """Return a grid function that raises an error where a launch on a GPU would."""

    def checked(meta: Any) -> Any:
        sizes = grid(meta) if callable(grid) else grid
        for axis, (size, most) in enumerate(zip(sizes, _MOST_PROGRAMS, strict=False)):
            if size > most:
                raise RuntimeError(
                    f"Triton Error [CUDA]: invalid argument: {size} programs along axis {axis} of "
                    f"the grid, which has at most {most}"
                )
        return sizes

    return checked


def _binder(kernel: Any) -> Any:
    from triton.backends.compiler import BaseBackend
    from triton.runtime import jit

    made = jit.JITFunction(kernel.fn, **kernel.kwargs)
    return jit.create_function_from_signature(made.signature, made.params, BaseBackend)


def _key(value: Any) -> Any:
    """Return a hashable key of a launch; launches that compile differently have different keys."""
    if isinstance(value, tuple | list):
        return tuple(_key(each) for each in value)
    if isinstance(value, int | float | str | bool | None):
        return type(value), value
    return type(value), repr(getattr(value, "value", id(value)))


class _Writer:
    """Writes kernels and their values as plain data for a record, each function once."""

    def __init__(self, source_file: str, names: dict[int, frozenset[str]], injected: Any) -> None:
        self.functions: list[dict[str, Any]] = []
        self._source_file, self._names, self._injected = source_file, names, injected
        self._places: dict[int, int] = {}

    def launch(self, kernel: Any, bound: Any, kinds: Any, options: Any) -> dict[str, Any]:
        from triton.runtime.jit import find_paths_if, get_iterable_path

        if isinstance(kinds, str):
            return {"function": self._function(kernel), "error": kinds}
        types = [kind[0] for kind in kinds]
        paths = find_paths_if(types, lambda _, kind: kind == "constexpr")
        values = list(bound.values())
        return {
            "function": self._function(kernel),
            "types": dict(zip(bound, types, strict=True)),
            "constants": [
                [list(path), self.value(get_iterable_path(values, path))] for path in paths
            ],
            "options": {str(name): self.value(value) for name, value in options.items()},
        }

    def _function(self, function: Any) -> int:
        plain = function.fn
        place = self._places.get(id(plain))
        if place is not None:
            return place
        place = self._places[id(plain)] = len(self.functions)
        found: dict[str, Any] = {"name": plain.__name__, "constexpr": not hasattr(function, "run")}
        self.functions.append(found)
        try:
            lines, found["line"] = inspect.getsourcelines(plain)
        except Exception as error:
            found["error"] = f"{type(error).__name__}: {error}"
            return place
        text = textwrap.dedent("".join(lines))
        if os.path.abspath(inspect.getfile(plain)) != os.path.abspath(self._source_file):
            found["text"] = text
        found["noinline"] = bool(getattr(function, "kwargs", {}).get("noinline"))
        signature = inspect.signature(plain).parameters
        found["annotations"] = {name: _annotation(each) for name, each in signature.items()}
        found["defaults"] = [self.value(value) for value in plain.__defaults__ or ()]
        found["globals"] = self._globals(plain, text)
        return place

    def _globals(self, plain: FunctionType, text: str) -> dict[str, Any]:
        scope = dict(plain.__globals__)
        own = set(self._names.get(id(plain.__globals__), scope))
        for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
            try:
                scope[name] = cell.cell_contents
                own.add(name)
            except ValueError:  # a name that is bound later
                scope.pop(name, None)
        named = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        return {
            name: self.value(scope[name])
            for name in sorted(named & scope.keys())
            if name in own or scope[name] is not self._injected.get(name)
        }

    def value(self, value: Any, depth: int = 0) -> Any:
        """Return a value as plain data; for an unknown object, the name of its type."""
        from triton import language
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITCallable

        inner = depth + 1
        if depth > _DEPTH:
            return {"other": "nested too deeply"}
        if isinstance(value, bool | str | None) or type(value) is int:
            return {"value": value}
        if isinstance(value, enum.IntEnum | int):
            return {"value": int(value)}
        if isinstance(value, float):
            return {"float": value.hex()}
        if isinstance(value, language.constexpr):
            return {"constexpr": self.value(value.value, inner)}
        if isinstance(value, language.dtype) and type(value) is language.dtype:
            return {"dtype": value.name}
        if isinstance(value, ModuleType):
            return {"module": value.__name__}
        if isinstance(value, InterpretedFunction | JITCallable):
            home = value.fn.__module__
            if home.startswith("triton."):
                return {"library": [home, value.fn.__name__]}
            return {"function": self._function(value)}
        if isinstance(value, tuple | list):
            kind = "list" if isinstance(value, list) else "tuple"
            found: dict[str, Any] = {kind: [self.value(each, inner) for each in value]}
            if hasattr(value, "_fields"):
                found["fields"] = [type(value).__name__, *value._fields]
            return found
        home, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
        if isinstance(home, str) and isinstance(name, str) and home.startswith("triton."):
            return {"library": [home, name]}
        return {"other": type(value).__name__}


def _annotation(parameter: inspect.Parameter) -> str:
    from triton.runtime.jit import KernelParam

    try:
        return str(KernelParam(0, parameter, False, False).annotation)
    except Exception:
        return ""
