"""`own_diff`: difference between the file that the user wrote and the best variant.

A kernel spec names a C++, CUDA or Triton source, from which the judge is given a Python module. The
difference is of the source. Compiler flags, choices of meta-parameters and launches, which are not
in the source, stand in lines before it, which `git apply` and ``patch`` pass over. Pure.
"""

from __future__ import annotations

import dataclasses

from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.files import diff_of
from kernelgym_train.mcgs.source_forms import holds_extension
from kernelgym_train.mcgs.task import SearchTask
from kernelgym_train.mcgs.variant import Variant, read_variant


def own_diff(task: SearchTask, variant: Variant) -> str:
    """Return a unified diff, with the user's file as its first side.

    It is a diff of the start's module where the user wrote a module, where a variant's C++ text
    does not hold the source's surroundings unchanged, or where the source did not change: a diff
    without a change is one that `git apply` refuses.
    """
    if (script := _own_script(task, variant)) is not None:
        return script
    texts = _own_texts(task, variant)
    if texts is None:
        return diff_of(task.start.source, variant.kernel().source)
    spec = task.spec
    assert spec is not None, "texts are of a spec"
    told = [f"# launch: {name}={value}\n" for name, value in variant.launch]
    if set(variant.flags) != set(spec.launch.flags):
        told.insert(0, f"# compiler flags: {' '.join(variant.flags)}\n")
    if texts[0] == texts[1]:
        return "".join([*told, diff_of(task.start.source, variant.kernel().source)])
    name = spec.path or f"{spec.name}.cpp"
    return "".join([*told, diff_of(*texts, name=name.lstrip("/"))])


def _own_script(task: SearchTask, variant: Variant) -> str | None:
    """Return the difference of the Triton source of a kernel spec; None if it cannot be made.

    The module that is judged is the source, and after it the generated launch.
    """
    spec = task.spec
    if spec is None or spec.is_extension or spec.entry == "ModelNew":
        return None
    plain = spec.source.rstrip()
    tail = task.start.source[len(plain) :]
    head = tail.partition("class ModelNew")[0]  # the imports before the generated class
    changed, found, rest = variant.source.rpartition(head)
    if not (task.start.source.startswith(plain) and head.strip() and found):
        return None
    before = tail.removeprefix(head).splitlines()
    told = [f"# launch: {line.strip()}\n" for line in rest.splitlines() if line not in before]
    name = spec.path or f"{spec.name}.py"
    after = changed + spec.source[len(plain) :]
    return "".join([*told, diff_of(spec.source, after, name=name.lstrip("/"))])


def _own_texts(task: SearchTask, variant: Variant) -> tuple[str, str] | None:
    """Return the user's source, and the same with the variant's changes; or None."""
    spec = task.spec
    if (
        spec is None
        or not holds_extension(variant.language, variant.source)
        or not spec.is_extension
    ):
        return None
    plain = spec.source.rstrip()
    if not holds_extension(task.start.language, task.start.source):
        return None
    start = file_of(read_variant(task.start)).cpp
    before, found, after = start.partition(plain)
    changed = file_of(dataclasses.replace(variant, launch=())).cpp
    if not (found and changed.startswith(before) and changed.endswith(after)):
        return None
    end = len(changed) - len(after)
    return spec.source, changed[len(before) : end] + spec.source[len(plain) :]
