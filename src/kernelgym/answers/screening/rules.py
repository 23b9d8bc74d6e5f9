"""The rules of screening, each a small function; `RULES` lists them all.

A rule takes (facts, language, ruleset) and yields (code, message, line). Rules about how torch
is used are in `kernelgym.answers.screening.torch_use`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator

from kernelgym.answers.screening.torch_use import (
    Raised,
    output_caching,
    precision_downgrade,
    stream_use,
    torch_compute_call,
    without_comments,
)
from kernelgym.answers.screening.tree import Facts
from kernelgym.languages import LANGUAGES, OwnKernel
from kernelgym.rulesets import Ruleset

Rule = Callable[[Facts, str, Ruleset], Iterator[Raised]]

_BUILDERS = tuple(
    dict.fromkeys(name for entry in LANGUAGES.values() for name in entry.own_kernel.builders)
)

# An honest kernel never needs these: they reach outside its process or under the interpreter.
_FORBIDDEN = frozenset(
    "cffi ctypes gc mmap multiprocessing signal socket subprocess _ctypes _posixsubprocess".split()
)
# What an honest kernel may call of them; modules that are used for nothing else pass.
_HARMLESS = {
    "gc": frozenset("collect disable enable isenabled".split()),
    "multiprocessing": frozenset(("cpu_count",)),
}
_INTERPRETER = "triton.runtime.interpreter."
_SUSPICIOUS = frozenset("asyncio concurrent inspect pickle pty shutil threading _thread".split())
# Nor these, by which operators of torch's, or NumPy's work on tensors, go unnoticed.
_HIDING = frozenset(
    """
    TensorBase _TensorBase _disable_current_modes _DisableTorchDispatch _DisablePythonDispatcher
    _ExcludeDispatchKeyGuard ExcludeDispatchKeyGuard _SetExcludeDispatchKeyGuard
    _dispatch_tls_set_dispatch_key_excluded _dispatch_tls_set_dispatch_key_included
    _jit_to_static_module _fuse_to_static_module StaticModule _te
    _IncludeDispatchKeyGuard _ForceDispatchKeyGuard __array_interface__
    __array_struct__ memmap StorageBase __mro__ __bases__ __base__ __subclasses__
    _VariableFunctions _VF _pop_mode _pop_mode_temporarily _pop_torch_dispatch_stack
    _unset_dispatch_mode _unset_infra_mode _disable_infra_mode
    get_kernel call_boxed _SafeKernelFunction _dispatch_call_boxed
    _dispatch_get_computed_kernel_for_dispatch_key
    """.split()
)
# Below autograd, operators are noticed as ever: extensions with a backward of their own need that.
# Possessive: blanks that two repetitions could share would be tried in every way.
_HIDING_TEXT = re.compile(
    r"ForceDispatchKeyGuard|get(?:Computed)?KernelForDispatchKey|SafeKernelFunction|ExcludeDispatchKeyGuard"
    r"(?!\s*+(?:\w++\s*+)?[({]\s*+(?:c10::)?autograd_dispatch_keyset\w*+\s*+[)}])|_force_tls_local|DispatchKey::Python|TorchDispatchMode"
    # Kernels of torch's own operators, and fallbacks for all: a copy could then be a product.
    r"|TORCH_LIBRARY_IMPL\s*+\(\s*+(?:aten|prims?|_)\s*+,|\bLibrary::IMPL\b|\bregisterImpl\b|\bregisterFallback\b"
    r"|PyImport_Import|PyRun_|\bmodule_?::import|\b(?:py|pybind11)::(?:eval|exec)\b"
)
_PROCESS_CONTROL = re.compile(
    r"(?:os|posix)\.(?:_exit|abort|exec\w*|fork\w*|kill\w*|popen|posix_spawn\w*|system|setsid)"
    r"|sys\.exit"
)
_CLOCKS = ("torch.cuda", "time", "torch.utils.benchmark", "triton.testing")
_FRAMES = frozenset(
    """
    inspect.currentframe inspect.getouterframes inspect.stack inspect.trace
    sys._current_frames sys._getframe sys.setprofile sys.settrace
    """.split()
)
# A function's closure and globals are those of the judge's own functions, too.
_FRAME_ATTRIBUTES = frozenset(
    """
    f_back f_globals f_locals gi_frame cr_frame tb_frame __closure__ __globals__ cell_contents
    """.split()
)


def no_custom_kernel(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding if the source has no kernel of its own in the language asked for."""
    entry = LANGUAGES.get(language)
    own = OwnKernel(builders=_BUILDERS) if entry is None else entry.own_kernel
    if own.decorator:
        if not any(language in function.kernel_in for function in facts.functions):
            message = f"no function is decorated with {own.decorator}{_looks_like(facts)}"
            yield "no_custom_kernel", message, 0
        for call in facts.calls:
            if _is_builder(facts, call, _BUILDERS):
                message = (
                    f"{facts.dotted(call.func)} builds a kernel in another language than the one "
                    f"asked for: write that computation under {own.decorator}"
                )
                yield "no_custom_kernel", message, call.lineno
        return
    if not any(_is_builder(facts, call, own.builders) for call in facts.calls):
        message = f"nothing is built: there is no call of {own.builders[0]}{_looks_like(facts)}"
        yield "no_custom_kernel", message, 0
    elif own.device_code and not _holds(facts, own.device_code):
        message = f"no source holds a {own.device_marker} function{_looks_like(facts)}"
        yield "no_custom_kernel", message, 0


def _looks_like(facts: Facts) -> str:
    """Return a hint at the language that an answer seems to be written in; empty if unknown."""
    name = seeming_language(facts)
    return f"; the answer looks like language {name!r} ({LANGUAGES[name].title})" if name else ""


def seeming_language(facts: Facts) -> str:
    """Return the name of the language that a module seems to be written in; empty if unknown."""
    marked = {name for function in facts.functions for name in function.kernel_in}
    # A function of Gluon is one of Triton's, too, and Gluon comes later.
    found = [name for name in reversed([*LANGUAGES]) if name in marked]
    built = [
        (name, bool(entry.headers or entry.told_by), bool(own.device_code))
        for name, entry in LANGUAGES.items()
        if any(_is_builder(facts, call, (own := entry.own_kernel).builders) for call in facts.calls)
        and (not own.device_code or _holds(facts, own.device_code))
        and (not entry.told_by or _holds(facts, entry.told_by))
    ]
    # The more particular signs first: words or headers of its own, then device code, then none.
    found += [name for name, *signs in sorted(built, key=lambda each: each[1:], reverse=True)]
    return found[0] if found else ""


def _holds(facts: Facts, device_code: str) -> bool:
    """Return True if a text of the answer matches a language's device code."""
    return any(re.search(device_code, text) for text, _ in facts.strings)


def kernel_never_used(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each kernel that is defined or built and that ModelNew never uses."""
    for function in facts.functions:
        # A kernel in a class is reached through attributes, which say too little to judge by.
        if function.jitted and not function.owner and function.name not in facts.live:
            message = f"kernel {function.name!r} is never used by ModelNew"
            yield "kernel_never_used", message, function.node.lineno
    names = {node.id for node in facts.of(ast.Name) if isinstance(node.ctx, ast.Load)}
    attributes = {node.attr for node in facts.of(ast.Attribute) if isinstance(node.ctx, ast.Load)}
    for node in facts.of(ast.Assign):
        if not isinstance(node.value, ast.Call):
            continue
        if not _is_builder(facts, node.value, _BUILDERS):
            continue
        for target in node.targets:
            unused_name = isinstance(target, ast.Name) and target.id not in names
            unused_attribute = isinstance(target, ast.Attribute) and target.attr not in attributes
            if unused_name or unused_attribute:
                yield "kernel_never_used", "the extension is built and never used", node.lineno


def try_except_fallback(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each handler that catches a kernel's errors to do something else."""
    in_forward = {id(node) for function in facts.forward for node in function.nodes}
    tries: list[ast.Try | ast.TryStar] = [*facts.of(ast.Try), *facts.of(ast.TryStar)]
    for node in tries:
        if all(_ends_in_raise(handler) for handler in node.handlers):
            continue
        builds = any(
            isinstance(inner, ast.Call) and _is_builder(facts, inner, _BUILDERS)
            for statement in node.body
            for inner in ast.walk(statement)
        )
        if builds or id(node) in in_forward:
            yield (
                "try_except_fallback",
                "errors of the kernel are caught; let them show",
                node.lineno,
            )
    for call in facts.calls:
        if facts.external(call.func) == "contextlib.suppress" and id(call) in in_forward:
            message = "errors of the kernel are suppressed; let them show"
            yield "try_except_fallback", message, call.lineno


def forbidden_import(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each import of a module that an honest kernel never needs."""
    harmless = _harmless_imports(facts)
    found = [each for each in facts.imported if each not in harmless]
    for call in facts.calls:
        name = facts.dotted(call.func)
        if name in ("__import__", "importlib.import_module") and call.args:
            argument = call.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                found.append((argument.value, call.lineno))
            else:
                yield (
                    "dynamic_code",
                    f"{name} imports a module whose name is computed at run time",
                    call.lineno,
                )
    found += [
        (name, node.lineno)
        for node in facts.of(ast.Attribute)
        if f"{(name := facts.dotted(node))}." == _INTERPRETER
    ]
    for module, line in found:
        root = module.partition(".")[0]
        if f"{module}.".startswith(_INTERPRETER):
            message = f"module {_INTERPRETER[:-1]!r} is not allowed in a kernel: no GPU has it"
            yield "forbidden_import", message, line
        elif root in _FORBIDDEN or module == "torch.multiprocessing":
            yield "forbidden_import", f"module {root!r} is not allowed in a kernel", line
        elif root in _SUSPICIOUS:
            yield "suspicious_import", f"a kernel seldom needs module {root!r}", line


def _harmless_imports(facts: Facts) -> set[tuple[str, int]]:
    """Return the imports of which only `_HARMLESS` functions are called.

    Anything but a direct call counts as another use: ``gc.collect.__self__`` is the module.
    """
    imports: dict[str, list[tuple[str, int, frozenset[str]]]] = {}
    for node in facts.of(ast.Import):
        for alias in node.names:
            functions = _HARMLESS.get(alias.name.removeprefix("torch."), frozenset())
            name = alias.asname or alias.name
            imports.setdefault(name, []).append((alias.name, node.lineno, functions))
    for source in facts.of(ast.ImportFrom):
        for alias in source.names:
            dotted = f"{source.module or ''}.{alias.name}"
            name = alias.asname or alias.name
            functions = _HARMLESS.get(dotted.removeprefix("torch."), frozenset())
            if alias.name in _HARMLESS.get(source.module or "", frozenset()):
                functions = frozenset(("",))  # called by its own name
            imports.setdefault(name, []).append((dotted, source.lineno, functions))
    called = Counter[tuple[str, str]]()
    for call in facts.calls:
        match call.func:
            case ast.Name(id=name):
                called[name, ""] += 1
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                called[name, attribute] += 1
    used = Counter(node.id for node in facts.of(ast.Name))
    return {
        (module, line)
        for name, bound in imports.items()
        for module, line, functions in bound
        # Two imports of one name cannot be told apart.
        if functions and len({each for each, _, _ in bound}) == 1
        if used[name] == sum(called[name, function] for function in functions)
    }


def hidden_work(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each way to compute with torch or NumPy unnoticed by the judge."""
    named = [(node.attr, node.lineno) for node in facts.of(ast.Attribute)]
    named += [(node.id, node.lineno) for node in facts.of(ast.Name)]
    named += [(path.rpartition(".")[2], 0) for path in facts.imports.values()]
    named += [(text, line) for text, line in facts.strings if text in _HIDING]
    for name, line in named:
        if name in _HIDING:
            yield "forbidden_import", f"{name!r} is not allowed in a kernel: it hides work", line
    for text, line in facts.strings:
        if found := _HIDING_TEXT.search(without_comments(text)):
            message = f"{found[0]!r} is not allowed in an extension: it hides work"
            yield "forbidden_import", message, line


def host_function(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each plain Python function that a kernel calls: it cannot be compiled."""
    names, methods = _plain_functions(facts)
    for function in facts.functions:
        if not function.jitted or any(
            LANGUAGES[name].own_kernel.takes_plain_functions for name in function.kernel_in
        ):
            continue
        own = {
            argument.arg
            for argument in ast.walk(function.node.args)
            if isinstance(argument, ast.arg)
        }
        for node in function.body:
            match node:
                case ast.Call(func=ast.Name(id=called)):
                    is_plain = called in names and called not in own
                case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
                    called = f"{owner}.{name}"
                    is_plain = called in methods and owner not in own
                case _:
                    continue
            if is_plain:
                decorator = LANGUAGES[min(function.kernel_in)].own_kernel.decorator
                message = (
                    f"kernel {function.name!r} calls {called!r}, a plain function of "
                    f"Python's: decorate it with {decorator}"
                )
                yield "no_custom_kernel", message, node.lineno


def _plain_functions(facts: Facts) -> tuple[set[str], set[str]]:
    """Return names of functions that are certainly plain Python, and those of methods as called."""
    bound = Counter(function.name for function in facts.functions if not function.owner)
    bound.update(node.name for node in facts.of(ast.ClassDef))
    bound.update(node.id for node in facts.of(ast.Name) if isinstance(node.ctx, ast.Store))
    plain: set[str] = set()
    for statement in facts.tree.body:
        match statement:
            case ast.FunctionDef(name=name, decorator_list=[]):
                if not any(f.jitted for f in facts.functions if f.node is statement):
                    plain.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
                plain.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other)):
                if other in plain and bound[other] == 1:
                    plain.add(name)
    methods = {
        f"{function.owner}.{function.name}"
        for function in facts.functions
        if function.owner and not function.jitted and bound[function.owner] == 1
    }
    return {name for name in plain if bound[name] == 1}, methods


def process_control(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each call that starts, ends or signals a process."""
    for call in facts.calls:
        name = facts.external(call.func)
        if _PROCESS_CONTROL.fullmatch(name):
            yield "process_control", f"{name} is called", call.lineno


def dynamic_code(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each call that makes code from text at run time."""
    for call in facts.calls:
        if isinstance(call.func, ast.Name) and call.func.id in ("eval", "exec", "compile"):
            if call.func.id not in facts.imports:
                yield "dynamic_code", f"{call.func.id} runs code made from text", call.lineno


def library_patch(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each replaced attribute of an imported module; clocks count as worse."""
    targets: list[ast.expr] = []
    several: list[ast.Assign | ast.Delete] = [*facts.of(ast.Assign), *facts.of(ast.Delete)]
    for node in several:
        for target in node.targets:
            targets += target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    targets += [node.target for node in facts.of(ast.AugAssign)]
    targets += [node.target for node in facts.of(ast.AnnAssign)]
    for target in targets:
        if isinstance(target, ast.Attribute):
            yield from _patch(facts.external(target), target.lineno)
    for call in facts.calls:
        if len(call.args) >= 2 and isinstance(call.func, ast.Name):
            if call.func.id in ("setattr", "delattr") and (owner := facts.external(call.args[0])):
                name = call.args[1]
                last = str(name.value) if isinstance(name, ast.Constant) else "?"
                yield from _patch(f"{owner}.{last}", call.lineno)


def frame_access(facts: Facts, language: str, ruleset: Ruleset) -> Iterator[Raised]:
    """Yield a finding for each access to callers' stack frames and each use of a trace function."""
    for node in facts.of(ast.Attribute):
        name = facts.external(node)
        if name in _FRAMES or node.attr in _FRAME_ATTRIBUTES:
            yield (
                "frame_access",
                f"{name or node.attr} looks into the stack frames of other functions",
                node.lineno,
            )
    for plain in facts.of(ast.Name):
        if facts.imports.get(plain.id) in _FRAMES:
            yield (
                "frame_access",
                f"{plain.id} looks into the stack frames of other functions",
                plain.lineno,
            )


def _patch(name: str, line: int) -> Iterator[Raised]:
    # Switches that exist to be set: the precision rule looks at those that matter.
    if not name or name.startswith(("torch.backends.", "triton.knobs.")):
        return
    if name.startswith(tuple(f"{clock}." for clock in _CLOCKS)):
        yield "timing_patch", f"{name} is replaced; timing relies on it", line
    else:
        yield "library_patch", f"{name} belongs to a module and is replaced", line


def _is_builder(facts: Facts, call: ast.Call, names: tuple[str, ...]) -> bool:
    name = facts.dotted(call.func)
    owner, _, last = name.rpartition(".")
    # A bare `load` says little; it counts only as the one of torch.utils.cpp_extension.
    return last in names and (last != "load" or owner.endswith("cpp_extension"))


def _ends_in_raise(handler: ast.ExceptHandler) -> bool:
    return bool(handler.body) and isinstance(handler.body[-1], ast.Raise)


RULES: tuple[Rule, ...] = (
    no_custom_kernel,
    kernel_never_used,
    torch_compute_call,
    try_except_fallback,
    forbidden_import,
    hidden_work,
    host_function,
    process_control,
    dynamic_code,
    library_patch,
    frame_access,
    stream_use,
    precision_downgrade,
    output_caching,
)
"""Every rule, in the order they are tried."""
