"""Rows of two public archives become entries of an index.

Contract: a row gives an `IndexEntry`, or a `LeftOut` with its reason. Texts change in names and in
the form of `get_init_inputs` only; no kernel is rewritten. That an archive calls a kernel correct
or fast is a claim: its entries say `not judged`, and its speeds are dropped.

- KernelBook: PyTorch modules and what TorchInductor made of them. A kernel that needs a private
  module of Inductor (`torch._inductor`, `extern_kernels`) cannot run under another version of torch
  and is never an entry.
- Sakana's AI CUDA Engineer archive: kernels for KernelBench's problems, as extensions with a
  function ``forward``. Each becomes a module whose `ModelNew` is the row's functional module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kernelgym.indexing.rows import Row, text_of
from kernelgym.indexing.sources import class_named, positional_inputs, with_names, without_functions
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.types import text_digest

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "inductor": "its kernel needs a private module of TorchInductor",
        "helpers": "its kernel or reference needs _paritybench_helpers, which is not installed",
        "names": "its class is not found, or another class is called Model",
        "init_inputs": "its get_init_inputs cannot be written as a list of positional arguments",
        "claimed_wrong": "its archive says that the kernel is wrong",
        "unreadable": "its kernel cannot be parsed",
        "language": "it is in a language that was not asked for",
        "duplicate": "an entry has the same texts, spacing aside",
    }
)
"""Reasons for which a row gives no entry."""

_PRIVATE = re.compile(r"\btorch\._inductor\b|\bextern_kernels\b")
_HELPERS = "_paritybench_helpers"
_UNREAD = ("get_inputs", "get_init_inputs")


@dataclass(frozen=True, slots=True)
class HubArchive:
    """A data set on the hub."""

    name: str
    """Name of the data set on the hub."""
    revision: str
    """Commit that is read; the newest if empty."""
    splits: tuple[str, ...]
    """Splits that are read, in this order."""
    columns: tuple[str, ...]
    """Columns that a row must have."""
    licence: str
    """Licence of the data set as a whole."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that gives no entry."""

    reason: str
    """Key of `REASONS` that says why the row gives no entry."""


KERNELBOOK = HubArchive(
    "GPUMODE/KernelBook",
    "1576375bc92745b490e1cdf2fce01eba76d9f847",  # the last one reported to be under MIT
    ("train",),
    ("python_code", "triton_code", "entry_point", "uuid", "licenses", "repo_link", "sha"),
    "MIT",
)
SAKANA = HubArchive(
    "SakanaAI/AI-CUDA-Engineer-Archive",
    "",
    ("level_1", "level_2", "level_3"),
    (
        *("Op_Name", "Level_ID", "Task_ID", "Kernel_Name", "PyTorch_Code_Module"),
        *("PyTorch_Code_Functional", "CUDA_Code", "Correct"),
    ),
    "CC-BY-4.0",
)


def kernelbook_entry(row: Row) -> IndexEntry | LeftOut:
    """Return the entry of a row of KernelBook, or the reason why it gives none."""
    name, reference, kernel = (
        text_of(row, key) for key in ("entry_point", *KERNELBOOK.columns[:2])
    )
    if _HELPERS in reference or _HELPERS in kernel:
        return LeftOut("helpers")
    if class_named(reference, name) is None or class_named(reference, "Model") not in (
        None,
        class_named(reference, name),
    ):
        return LeftOut("names")
    renamed = with_names(reference, {name: "Model"})
    module = None if renamed is None else positional_inputs(renamed, "Model")
    if module is None:
        return LeftOut("init_inputs")
    if _PRIVATE.search(kernel):
        return LeftOut("inductor")
    new = f"{name}New"
    if class_named(kernel, new) is None:
        return LeftOut("names")
    answer = with_names(kernel, {new: "ModelNew"})
    if answer is None:
        return LeftOut("unreadable")
    return IndexEntry(
        module,
        answer,
        "triton",
        problem_id=f"KernelBook/{text_of(row, 'uuid')}",
        name=name,
        origin="KernelBook",
        licence=text_of(row, "licenses"),
        provenance=f"{text_of(row, 'repo_link')}@{text_of(row, 'sha')}",
    )


def sakana_entry(row: Row) -> IndexEntry | LeftOut:
    """Return the entry of a row of Sakana's archive, or the reason why it gives none."""
    if row.get("Correct") is not True:
        return LeftOut("claimed_wrong")
    reference, functional = (
        text_of(row, key) for key in ("PyTorch_Code_Module", "PyTorch_Code_Functional")
    )
    if class_named(reference, "Model") is None or class_named(functional, "Model") is None:
        return LeftOut("names")
    bare = without_functions(functional, ("module_fn", *_UNREAD))
    module = None if bare is None else with_names(bare, {"Model": "ModelNew"})
    code = text_of(row, "CUDA_Code")
    quote = next((mark for mark in ("'''", '"""') if mark not in code), None)
    if module is None or quote is None or "\\" in code[-1:]:
        return LeftOut("unreadable")
    name = f"kernel_{text_digest(code)}"
    kernel = (
        "from torch.utils.cpp_extension import load_inline\n\n"
        f"CUDA_SOURCE = r{quote}\n{code.strip()}\n{quote}\n\n"
        f'built = load_inline(name="{name}", cpp_sources="", cuda_sources=CUDA_SOURCE)\n'
        f"module_fn = built.forward\n\n\n{module.strip()}\n"
    )
    return IndexEntry(
        reference,
        kernel,
        "cuda",
        problem_id=f"KernelBench/L{text_of(row, 'Level_ID')}/{text_of(row, 'Task_ID')}",
        name=text_of(row, "Op_Name"),
        origin="Sakana",
        licence=SAKANA.licence,
        provenance=text_of(row, "Kernel_Name"),
    )
