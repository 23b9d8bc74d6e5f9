"""Has Triton compile recorded launches for a GPU: its front end, or every stage but an assembler.

The front end is the part of Triton's compiler that turns Python's syntax into Triton's intermediate
language (TTIR). It needs no GPU and no driver. It refuses what only the interpreter takes: NumPy in
a kernel, lists, `try`, plain globals, loops over floats, operands of `tl.dot` that are too small.

This runs in a process that loads no kernel's module. A kernel's text is compiled, and what it may
call at compile time is Triton's language alone: modules are replaced by copies that hold what a
kernel may use, and names that begin with two underscores are refused. So no code of a kernel runs
here, and a kernel cannot have the front end say yes.

For the compile tier (``whole``) the later stages follow, down to a binary for AMD's GPUs and to PTX
for NVIDIA's, whose assembler is a program. They are libraries of Triton's wheel.

Not covered: what NVIDIA's assembler and a launch refuse, such as too much shared memory.
Tensor descriptors made on the host and tuples are checked like any argument.

Loaded by path in the untrusted process: standard library and triton only.
"""

from __future__ import annotations

import ast
import importlib
import io
import linecache
import math
import os
import textwrap
from collections import namedtuple
from collections.abc import Callable
from types import ModuleType
from typing import Any

_BUILTINS = (
    *("abs", "bool", "divmod", "enumerate", "float", "int", "isinstance", "len", "list", "max"),
    *("min", "pow", "print", "range", "reversed", "round", "sorted", "str", "sum", "tuple", "zip"),
    *("ValueError", "TypeError", "AssertionError", "Exception", "True", "False", "None"),
)
"""Python's own functions that a `constexpr_function` may call."""

_MOST_THREADS, _MOST_BLOCKS = 1024, 16  # CUDA's guide, "Technical specifications"
_PTX_VERSION = 87
"""PTX version 8.7. Triton asks its assembler, a program, for the newest one if none is given."""


class KernelRefused(Exception):
    """A kernel's text contains names or syntax that must not run in this process."""


def refusals(
    record: dict[str, Any],
    target: str,
    describe: Callable[[BaseException, str], dict[str, str]],
    whole: bool = False,
) -> list[dict[str, Any]]:
    """Return the launches that Triton refuses to compile, with its errors.

    Args:
        record: The result of `launch_record.Recorder.report`, with every function's text.
        target: GPU to compile for, such as ``cuda:90`` or ``hip:gfx942``.
        describe: Describes an error for the trusted side.
        whole: Whether the stages after the front end compile the launches, too.
    """
    import triton.language.extra.cuda.libdevice  # noqa: F401  # kernels name it, nothing imports it
    from triton.compiler import code_generator
    from triton.compiler.compiler import make_backend

    code_generator.CodeGenerator.builtin_namespace["getattr"] = _public_attribute
    if whole:  # otherwise errors of later stages have no line
        os.environ.pop("TRITON_DISABLE_LINE_INFO", None)
    backend = make_backend(_target(target))
    reader, found = _Reader(record["functions"]), []
    for index, launch in enumerate(record["launches"]):
        name = str(record["functions"][launch["function"]].get("name"))
        try:
            _compile(backend, reader, launch, whole)
        except BaseException as error:
            if launch.get("raised") is True and _asserts(error):
                continue  # no program ran: an autotuner passes over such a config on a GPU, too
            told = describe(error, "")
            line = _line(error, reader.lines)
            found.append({"launch": index, "name": name, **told, "where": line})
    return found


def _asserts(error: BaseException | None) -> bool:
    """Return True if a failed `tl.static_assert` is the error or among its causes."""
    from triton.compiler.errors import CompileTimeAssertionFailure

    while error is not None and not isinstance(error, CompileTimeAssertionFailure):
        error = error.__cause__
    return error is not None


def _target(name: str) -> Any:
    """Return Triton's target object for a name such as ``cuda:90`` or ``hip:gfx942``."""
    from triton.backends.compiler import GPUTarget

    kind, _, arch = name.partition(":")
    if not arch.startswith("gfx"):
        return GPUTarget(kind, int(arch.rstrip("af")), 32)  # Triton adds the letter itself
    # The last two characters are minor version and stepping: gfx942 is 9.4.2, gfx1100 is 11.0.0.
    return GPUTarget(kind, arch, 64 if int(arch[3:-2]) < 10 else 32)


def _compile(backend: Any, reader: _Reader, launch: dict[str, Any], whole: bool) -> None:
    from triton._C.libtriton import ir
    from triton.compiler.compiler import ASTSource

    function = reader.function(launch["function"])
    if "error" in launch:
        raise KernelRefused(launch["error"])
    types = {name: _tupled(kind) for name, kind in launch["types"].items()}
    constants = {tuple(path): reader.value(value) for path, value in launch["constants"]}
    given = {name: reader.value(value) for name, value in launch["options"].items()}
    options = backend.parse_options(dict(given))
    for name in given:
        if name not in options.__dict__ and name not in types:
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")
    _check_sizes(options, backend.target.warp_size)
    source = ASTSource(function, types, constants, {})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    generators = backend.get_codegen_implementation(options)
    module = source.make_ir(backend.target, options, generators, backend.get_module_map(), context)
    if not whole:
        return
    if getattr(options, "ptx_version", 0) is None:
        object.__setattr__(options, "ptx_version", _PTX_VERSION)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    facts = {"hash": "", "target": backend.target, **options.__dict__}
    for name, stage in stages.items():
        if name == "cubin":  # starts NVIDIA's assembler, and no program may be started here
            return
        module = stage(module, facts)


def _check_sizes(options: Any, lanes: int) -> None:
    """Refuse sizes that a later stage or the launch would refuse.

    Args:
        options: The launch's options.
        lanes: Number of threads in a warp, or in a wave of an AMD GPU.
    """
    most = _MOST_THREADS // lanes
    if options.num_warps > most:
        raise KernelRefused(
            f"num_warps={options.num_warps}: a program has at most {most} warps, "
            f"{_MOST_THREADS} threads, on a GPU"
        )
    if options.num_ctas > _MOST_BLOCKS:
        raise KernelRefused(
            f"num_ctas={options.num_ctas}: a cluster has at most {_MOST_BLOCKS} blocks on a GPU"
        )


def _tupled(kind: Any) -> Any:
    return tuple(map(_tupled, kind)) if isinstance(kind, list) else kind


def _line(error: BaseException, lines: dict[str, tuple[int, str]]) -> str:
    """Return the lines of the kernel's module that an error's traceback names."""
    places: list[str] = []
    link: BaseException | None = error
    while link is not None and len(places) < 4:
        node, source = getattr(link, "node", None), getattr(link, "src", None)
        if node is not None and isinstance(source, str) and source.strip() in lines:
            first, name = lines[source.strip()]
            places.append(f"line {first + node.lineno - 1}, in {name}")
        link = link.__cause__
    return "; ".join(dict.fromkeys(places))


class _Reader:
    """Makes functions and values for Triton's compiler from a record of launches."""

    def __init__(self, functions: list[dict[str, Any]]) -> None:
        self._written, self._made = functions, dict[int, Any]()
        self.lines: dict[str, tuple[int, str]] = {}
        """First line of the `def` and name of each function, by its text."""

    def function(self, index: int) -> Any:
        """Return a function of the record; a recursive one finds itself."""
        if index in self._made:
            return self._made[index]
        written = self._written[index]
        if "error" in written:
            raise KernelRefused(written["error"])
        scope: dict[str, Any] = {"__name__": "kernel"}
        plain = self._plain(index, written, scope)
        from triton.runtime.jit import ConstexprFunction, JITFunction

        if written["constexpr"]:
            scope["__builtins__"] = {
                name: vars(importlib.import_module("builtins"))[name] for name in _BUILTINS
            }
            made: Any = ConstexprFunction(plain)
        else:
            made = JITFunction(plain, noinline=written["noinline"])
        self._made[index] = made
        plain.__defaults__ = tuple(map(self.value, written["defaults"])) or None
        # A default is read from the text on a GPU, and from here by functions that call this one.
        made.signature = importlib.import_module("inspect").signature(plain)
        scope |= {name: self.value(value) for name, value in written["globals"].items()}
        return made

    def _plain(self, index: int, written: dict[str, Any], scope: dict[str, Any]) -> Any:
        text = textwrap.dedent(written["text"])
        first = int(written["line"])
        tree = ast.parse(text)
        node = tree.body[0] if tree.body else None
        if len(tree.body) != 1 or not isinstance(node, ast.FunctionDef):
            raise KernelRefused("a Triton kernel must be a function written with def")
        _check_names(node)
        # `str.splitlines` ends lines at form feeds, too, which Python's parser does not.
        lines = list(io.StringIO(text, newline=""))[node.lineno - 1 :]
        first += node.lineno - 1
        node.decorator_list, node.returns = [], None
        arguments = node.args
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            told = written["annotations"].get(each.arg)
            each.annotation = ast.Constant(told) if told else None
        arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
        arguments.kw_defaults = [each and ast.Constant(None) for each in arguments.kw_defaults]
        ast.increment_lineno(tree, first - node.lineno)
        ast.fix_missing_locations(tree)
        file = f"kernel-{index}.py"
        linecache.cache[file] = (len(text), None, ["\n"] * (first - 1) + lines, file)
        exec(compile(tree, file, "exec"), scope)
        self.lines["".join(lines).strip()] = first, node.name
        return scope[node.name]

    def value(self, written: Any) -> Any:
        """Return a value of the record."""
        from triton import language

        match next(iter(written.items())):
            case ("value", value):
                return value
            case ("float", digits):
                return float.fromhex(digits)
            case ("constexpr", value):
                return language.constexpr(self.value(value))
            case ("dtype", name):
                return language.dtype(name)
            case ("module", name):
                return _module(name)
            case ("library", (home, name)):
                return getattr(_module(home), name)
            case ("function", index):
                return self.function(index)
            case ("list", values):
                return [self.value(each) for each in values]
            case ("tuple", values):
                found = tuple(self.value(each) for each in values)
                if fields := written.get("fields"):
                    return namedtuple(fields[0], fields[1:])(*found)
                return found
            case ("other", kind):
                return _Other(str(kind))
        raise KernelRefused(f"{written!r} is no value")


class _Other:
    """Stand-in for an object that Triton's language does not know."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __repr__(self) -> str:
        return f"<{self._kind}>"

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self._kind} is no part of Triton's language: a kernel cannot call it")


_modules: dict[str, ModuleType] = {}


def _module(name: str) -> ModuleType:
    """Return a copy of a module with only what kernels may use."""
    if name in _modules:
        return _modules[name]
    copy = _modules[name] = ModuleType(name)
    if name == "math":
        vars(copy).update({key: value for key, value in vars(math).items() if key[0] != "_"})
    if name.partition(".")[0] != "triton":
        if name != "math":  # of NumPy and torch a kernel can use nothing
            vars(copy)["__getattr__"] = lambda key: _foreign(name, key)
        return copy
    for key, value in vars(importlib.import_module(name)).items():
        if isinstance(value, ModuleType):
            if value.__name__.startswith("triton.language"):
                setattr(copy, key, _module(value.__name__))
        elif not key.startswith("__") and _is_language(value):
            setattr(copy, key, value)
    return copy


def _foreign(module: str, name: str) -> _Other:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Other(f"{module}.{name}")


def _is_language(value: Any) -> bool:
    from triton.language.core import constexpr, dtype, is_builtin
    from triton.runtime.jit import JITCallable

    plain = isinstance(value, int | float | str | bool | None | constexpr | dtype | JITCallable)
    home = str(getattr(value, "__module__", ""))
    language = isinstance(value, type) and home.startswith("triton.language")
    # Empty functions, whose names stand for those of each GPU's own library.
    stub = home == "triton.language.extra.libdevice"
    return plain or language or stub or (callable(value) and is_builtin(value))


def _check_names(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if isinstance(name, str) and name.startswith("__"):
            raise KernelRefused(
                f"line {getattr(node, 'lineno', 0)} of the kernel uses {name}: names that begin "
                "with two underscores are Python's own, and no part of Triton's language"
            )


def _public_attribute(value: Any, name: str, *default: Any) -> Any:
    if str(name).startswith("__"):
        raise KernelRefused(f"getattr(..., {name!r}) is no part of Triton's language")
    return getattr(value, name, *default)


_public_attribute.__name__ = "getattr"
