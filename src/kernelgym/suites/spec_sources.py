"""Facts read from a spec's sources: signatures, and the tensors that a kernel writes.

Contract: texts are read and never run. Of C++ only a function's own declaration is read, found
outside of comments; a source in which it cannot be found is a `UsageError`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from kernelgym.errors import UsageError

# Each alternative takes what is not closed to its end: tried anew from each start, the time would
# be a square of the text. A character such as '"' begins no string.
_COMMENT = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|'(?:\\.|[^'\\\n])'|("(?:\\.|[^"\\\n])*"?)""", re.DOTALL
)
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]{0,200}\)")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_STORES = ("store", "atomic_")
_LONGEST_TYPE = 500
"""Number of characters before a C++ function's name that are searched for its return type."""
_LONGEST_PARAMETERS = 5000
"""Number of characters after a C++ function's name that are searched for its parameters."""


def run_parameters(source: str) -> tuple[str, ...]:
    """Return the parameters of the function ``run`` of a kernel spec's reference.

    Raises:
        UsageError: If the source is not Python, has no `run`, or one that takes other arguments.
    """
    found = _function(source, "run", "the reference")
    taken = found.args
    if taken.vararg or taken.kwarg or taken.posonlyargs or taken.kwonlyargs:
        raise UsageError("the reference's run takes arguments by name alone; leave out * and /")
    return tuple(argument.arg for argument in taken.args)


def is_jit(source: str, entry: str) -> bool:
    """Return True if a Python function is compiled by Triton.

    Raises:
        UsageError: If the source is not Python, or does not define the function.
    """
    found = _function(source, entry, "the source")
    return any("jit" in ast.unparse(each) for each in found.decorator_list)


def unwritten_by_triton(source: str, entry: str, arguments: list[str]) -> list[str]:
    """Return the arguments to which a Triton kernel stores nothing.

    A parameter counts as written if a store's or an atomic's pointer is computed from it, or if it
    is handed to a function other than Triton's own.

    Args:
        source: The module.
        entry: The kernel in it.
        arguments: Arguments of the kernel's call, in the order of its parameters.
    """
    function = _function(source, entry, "the source")
    parameters = [argument.arg for argument in function.args.args]
    reached: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        stores = isinstance(node.func, ast.Attribute) and node.func.attr.startswith(_STORES)
        if not ast.unparse(node.func).startswith(("tl.", "triton.")):
            if stores:  # a descriptor's method
                reached |= _names([node.func])
            else:
                reached |= _names([*node.args, *(keyword.value for keyword in node.keywords)])
        elif stores:
            pointer = next((k.value for k in node.keywords if k.arg == "pointer"), None)
            reached |= _names([pointer] if pointer is not None else node.args[:1])
    before = -1
    while len(reached) != before:
        before = len(reached)
        for node in ast.walk(function):
            targets: list[ast.expr] = []
            match node:
                case ast.Assign(targets=targets, value=value):
                    pass
                case (
                    ast.AugAssign(target=target, value=value)
                    | ast.NamedExpr(target=target, value=value)
                    | ast.AnnAssign(target=target, value=ast.expr() as value)
                    | ast.For(target=target, iter=value)
                ):
                    targets = [target]
                case _:
                    continue
            if _names(targets) & reached:
                reached |= _names([value])
    return [
        given for given, name in zip(arguments, parameters, strict=False) if name not in reached
    ]


def cpp_function(source: str, entry: str) -> tuple[str, tuple[str, ...]]:
    """Return a C++ function's return type, and its parameters' texts.

    Raises:
        UsageError: If the source does not define the function.
    """
    text = _DIRECTIVE.sub("", _COMMENT.sub(lambda match: '""' if match[1] else " ", source))
    text = _BOUNDS.sub(" ", text)
    ends = -1
    for match in re.finditer(rf"\b{re.escape(entry)}\s*\(", text):
        begins = match.end()
        if ends < begins:  # looked for once, not from every start
            found = re.compile("[{};]").search(text, begins)
            ends = found.start() if found else len(text)
        if text[ends : ends + 1] != "{" or ends - begins > _LONGEST_PARAMETERS:
            continue
        given = text[begins:ends].rstrip().removesuffix("noexcept").rstrip()
        if not given.endswith(")"):
            continue
        # Looking back from the name: a type sought from every start costs a square of the text.
        before = text[max(0, match.start() - _LONGEST_TYPE) : match.start()].rstrip()
        kind = " ".join(before[_type_begins(before) :].split())
        if kind:
            kind = kind.removeprefix("static ").removeprefix("inline ")
            return kind, tuple(_split(" ".join(given[:-1].split())))
    raise UsageError(f"the source defines no function {entry!r}; entry names one of its own")


def _type_begins(before: str) -> int:
    """Return the index at which the return type begins that ends a text."""
    begins = len(before)
    while begins and (before[begins - 1].isalnum() or before[begins - 1] in "_:<>,*& \t\n"):
        begins -= 1
    return begins


def is_global(source: str, entry: str) -> bool:
    """Return True if a C++ function is a kernel that is launched by ``<<<grid, block>>>``.

    Raises:
        UsageError: If the source does not define the function.
    """
    return "__global__" in cpp_function(source, entry)[0]


def parameter_type(parameter: str) -> str:
    """Return the type in a C++ parameter's text, such as ``const float*``."""
    plain = re.sub(r"\b__restrict(__)?\b|\s*=.*", " ", parameter)
    return re.sub(r"\s*\b\w+\s*$", "", plain).strip()


def declaration(source: str, entry: str) -> str:
    """Return the declaration of a C++ function.

    Raises:
        UsageError: If the source does not define the function.
    """
    kind, parameters = cpp_function(source, entry)
    plain = [re.sub(r"\s*=.*", "", parameter) for parameter in parameters]
    return f"{kind} {entry}({', '.join(plain)});"


def _split(parameters: str) -> list[str]:
    found, depth, current = [], 0, ""
    for character in parameters:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            found.append(current.strip())
            current = ""
        else:
            current += character
    return [*found, current.strip()] if current.strip() else found


def _function(source: str, name: str, what: str) -> ast.FunctionDef:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise UsageError(f"{what} is not valid Python: {error}") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise UsageError(f"{what} defines no function {name!r}")


def _names(nodes: Sequence[ast.expr]) -> set[str]:
    return {node.id for root in nodes for node in ast.walk(root) if isinstance(node, ast.Name)}
