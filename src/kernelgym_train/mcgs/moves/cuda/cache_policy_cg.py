"""`cache_policy_cg`: marks pointers as read-only, and lets stores bypass the caches."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.syntax import declared_name, index_node, text_of, walk
from kernelgym_train.mcgs.cuda.elements import written
from kernelgym_train.mcgs.cuda.text import CudaKernel, CudaLaunch, read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_STREAMED = ("float", "double", "int")


@extension_move("exact", phase=65, weight=0.6, language="cuda")
def cache_policy_cg(cpp: str) -> Iterator[ChangedText]:
    """Load through the read-only cache, and keep what is written once out of the caches.

    Yields ``__restrict__`` for a kernel's pointers, and stores that leave the caches early.
    """
    text = read_cuda(cpp)
    for name, kernel in text.kernels.items():
        apart = all(_are_apart(kernel, each) for each in text.launches if each.kernel == name)
        if apart and (edits := _restricted(kernel)):
            yield ChangedText(f"pointers of {name}", "__restrict__", replaced(cpp, edits))
        if edits := _streaming(kernel):
            yield ChangedText(f"stores of {name}", "__stcs", replaced(cpp, edits))


def _are_apart(kernel: CudaKernel, launch: CudaLaunch) -> bool:
    """Return True if a launch passes a different name for each pointer of a CUDA kernel."""
    if len(launch.arguments) != len(kernel.parameters):
        return False
    pairs = zip(kernel.parameters, launch.arguments, strict=True)
    given = ["".join(text_of(each).split()) for parameter, each in pairs if parameter.is_pointer]
    return len(set(given)) == len(given)


def _restricted(kernel: CudaKernel) -> list[tuple[Node, str]]:
    """Return edits of a CUDA source that declare pointer parameters as ``__restrict__``."""
    found = []
    for each in kernel.pointers.values():
        name = declared_name(each.node.child_by_field_name("declarator"))
        if name is not None and "__restrict" not in text_of(each.node):
            found.append((name, f"__restrict__ {each.name}"))
    return found


def _streaming(kernel: CudaKernel) -> list[tuple[Node, str]]:
    """Return edits that make stores bypass the caches, to arrays that the kernel does not read."""
    found = []
    stored = written(kernel.body)
    for node in walk(kernel.body):
        if node.type != "expression_statement" or not node.named_children:
            continue
        store = node.named_children[0]
        target, value = (store.child_by_field_name(side) for side in ("left", "right"))
        if store.type != "assignment_expression" or target is None or value is None:
            continue
        array = kernel.pointers.get(text_of(target.child_by_field_name("argument")))
        if array is None or array.name not in stored or array.element not in _STREAMED:
            continue
        if text_of(store.child_by_field_name("operator")) != "=" or index_node(target) is None:
            continue
        named = [n for n in walk(kernel.body) if n.type == "identifier"]
        if sum(text_of(each) == array.name for each in named) == 1:
            found.append((store, f"__stcs(&{text_of(target)}, {text_of(value)})"))
    return found
