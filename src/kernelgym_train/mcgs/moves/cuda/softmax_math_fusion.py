"""`softmax_math_fusion`: computes exponentials and logarithms on the special function unit."""

from __future__ import annotations

from collections.abc import Iterator

from kernelgym_train.mcgs.cpp.editing import replaced
from kernelgym_train.mcgs.cpp.syntax import text_of, walk
from kernelgym_train.mcgs.cuda.text import read_cuda
from kernelgym_train.mcgs.moves.text_moves import ChangedText, extension_move

_FAST = {
    **{"expf": "__expf", "logf": "__logf", "log2f": "__log2f", "sinf": "__sinf"},
    **{"cosf": "__cosf", "powf": "__powf"},
}


@extension_move("approximate", phase=40, weight=1.0, language="cuda")
def softmax_math_fusion(cpp: str) -> Iterator[ChangedText]:
    """Compute exponentials and logarithms by the special function unit alone.

    Yields the fast functions, for each kernel that calls any.
    """
    text = read_cuda(cpp)
    for name, kernel in text.kernels.items():
        calls = [each for each in walk(kernel.body) if each.type == "call_expression"]
        called = [each.child_by_field_name("function") for each in calls]
        edits = [(each, _FAST[text_of(each)]) for each in called if each and text_of(each) in _FAST]
        if edits:
            yield ChangedText(name, "fast functions", replaced(cpp, edits))
