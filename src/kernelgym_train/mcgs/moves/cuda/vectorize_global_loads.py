"""`vectorize_global_loads`: lets each thread of an elementwise kernel handle 16 bytes of an array.

Neighbouring elements are loaded and stored as one value of 16 bytes where all arrays begin at a
multiple of 16, and one by one elsewhere and at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from kernelgym_train.mcgs.cpp.editing import replaced, rewritten
from kernelgym_train.mcgs.cpp.syntax import text_of
from kernelgym_train.mcgs.cuda.elements import CudaElements, elements_of, written
from kernelgym_train.mcgs.cuda.text import CudaLaunch, CudaText, read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move
from kernelgym_train.mcgs.templates import filled

_BYTES = {
    **{"float": 4, "int": 4, "unsigned": 4, "int32_t": 4, "double": 8, "int64_t": 8},
    **{"half": 2, "__half": 2, "at::Half": 2, "c10::Half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2},
}


@extension_move("exact", phase=20, weight=1.5, language="cuda")
def vectorize_global_loads(cpp: str) -> Iterator[ChangedText]:
    """Let each thread load and store 16 bytes of an array at once.

    Yields the wide form of each elementwise kernel.
    """
    text = read_cuda(cpp)
    for name, kernel in text.kernels.items():
        launch, found = text.only_launch(name), elements_of(text, kernel)
        if launch is None or found is None or "WIDTH" in text.text:
            continue
        width = _width(found) if found.is_alone else None
        grid = None if width is None else _fewer_blocks(text, launch, width)
        if width is None or grid is None:
            continue
        made = replaced(cpp, [(kernel.body, _body(found, width)), grid])
        yield ChangedText(name, f"{width} elements", made)


def _width(found: CudaElements) -> int | None:
    """Return how many elements are in 16 bytes; None if the CUDA kernel's accesses forbid it."""
    accesses = found.accesses()
    sizes = {_BYTES.get(found.kernel.pointers[name].element) for name in accesses}
    stored = {name for statement in found.body for name in written(statement)}
    if not accesses or len(sizes) != 1 or not stored <= set(accesses):
        return None
    # An array that is read elsewhere as well is loaded as before; one that is written is not.
    if any(found.mentions(name) != len(accesses[name]) for name in stored):
        return None
    (size,) = sizes
    return None if size is None else 16 // size


def _fewer_blocks(text: CudaText, launch: CudaLaunch, width: int) -> tuple[Node, str] | None:
    """Return the edit that launches no more blocks than are needed; None for an unknown grid."""
    if len(launch.grid) != 1 or len(launch.block) != 1:
        return None
    (blocks,) = launch.grid
    others = [size for each in text.launches if each is not launch for size in each.grid]
    if any(size.start_byte == blocks.start_byte for size in others):
        return None
    return blocks, f"(({text_of(blocks)}) + {width - 1}) / {width}"


def _body(found: CudaElements, width: int) -> str:
    accesses = found.accesses()
    stored = {name for statement in found.body for name in written(statement)}
    own = {node.id: f"{name}_own[lane]" for name, nodes in accesses.items() for node in nodes}

    def lane(node: Node) -> str | None:
        if node.id in own:
            return own[node.id]
        is_index = node.type == "identifier" and text_of(node) == found.index
        return "(first + lane)" if is_index else None

    return filled(
        "vectorize_global_loads.cu.j2",
        found=found,
        width=width,
        addresses=" | ".join(f"reinterpret_cast<unsigned long long>({name})" for name in accesses),
        elements={name: found.kernel.pointers[name].element for name in accesses},
        stored=[name for name in accesses if name in stored],
        lanes=[rewritten(each, lane) for each in found.body],
        text=text_of,
    ).strip()
