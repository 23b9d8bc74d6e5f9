"""Pretrained models that problems load by name from the Hugging Face hub.

A problem of KernelBench's level 4 calls ``AutoModelForCausalLM.from_pretrained("gpt2")``. Workers
and candidates have no network, so the weights have to lie on this machine: `fetch` downloads a
model's configuration and PyTorch weights at the revision that the hub has now, into a folder of
kernelgym's own with the layout of the hub's cache. The processes of the judge read that folder and
nothing else of the hub (`hub_variables`).

Contract: a model is held once ``refs/main`` names a snapshot, which `fetch` writes last. A model
that is held stays at its revision; to take a newer one, remove its folder and fetch it again.

Not covered: names that a problem puts together at run time. `models_of` reads text and constants of
the module.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelgym.errors import ProblemError, UsageError
from kernelgym.hub import ask_hub
from kernelgym.machine import installed_version
from kernelgym.paths import cache_folder
from kernelgym.types import Problem
from kernelgym.whole_file import write_whole

HUB_VARIABLES = (
    *("HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_HUB_DISABLE_TELEMETRY"),
    "TRANSFORMERS_VERBOSITY",
)
"""Names of the variables that `hub_variables` sets, which candidates keep as well."""

_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8}
"""Bytes of one weight, by the type that a configuration names; 4 for any other."""
_TRANSFORMERS = re.compile(r"^\s*(?:import|from)\b[^#\n]*\btransformers\b", re.MULTILINE)
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Not model.fp32.safetensors and the like, which from_pretrained reads only if asked for a variant.
_SAFE = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
_SMALL = re.compile(r"[\w.-]+\.(json|txt|model)")
_SPARE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class PretrainedModel:
    """A pretrained model whose files are on this machine."""

    name: str
    """Name of the model on the hub, such as ``gpt2`` or ``facebook/opt-1.3b``."""
    revision: str
    """Commit of the model's repository on the hub, in 40 hexadecimal digits."""
    folder: Path
    """Folder of the model's files."""
    weight_bytes: int
    """Bytes of the model's weight files."""


def models_of(problem: Problem) -> tuple[str, ...]:
    """Return the names of the pretrained models that a problem loads, in order."""
    return _models_of(problem.source)


@functools.lru_cache(maxsize=1024)
def _models_of(source: str) -> tuple[str, ...]:
    if "from_pretrained" not in source:
        return ()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()  # the judge says what is wrong with the problem
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        given = [k.value for k in node.keywords if k.arg == "pretrained_model_name_or_path"]
        if node.func.attr == "from_pretrained" and (node.args or given):
            first = (*node.args, *given)[0]
            named = constants.get(first.id) if isinstance(first, ast.Name) else None
            name = first.value if isinstance(first, ast.Constant) else named
            if isinstance(name, str) and _NAME.fullmatch(name):
                found.append(name)
    return tuple(dict.fromkeys(found))


def uses_transformers(problem: Problem) -> bool:
    """Return True if a problem imports the package transformers."""
    return _TRANSFORMERS.search(problem.source) is not None


def models_folder() -> Path:
    """Return the folder that `fetch` puts models into, with the layout of the hub's cache."""
    return cache_folder() / "models"


def hub_variables() -> dict[str, str]:
    """Return the variables that make a judge's process read models from that folder, offline."""
    folder = str(models_folder().absolute())
    return dict(zip(HUB_VARIABLES, (folder, "1", "1", "1", "error"), strict=True))


def held(name: str) -> PretrainedModel | None:
    """Return a fetched model by its name; None if it was not fetched."""
    folder = _folder_of(name)
    try:
        revision = (folder / "refs" / "main").read_text("utf-8").strip()
        files = list((folder / "snapshots" / revision).iterdir())
    except OSError:
        return None
    weights = [f for f in files if _SAFE.fullmatch(f.name) or _PICKLED.fullmatch(f.name)]
    try:
        size = sum(file.stat().st_size for file in weights)
    except OSError:  # a link whose file was removed
        return None
    return PretrainedModel(name, revision, folder / "snapshots" / revision, size) if size else None


def weight_bytes(problem: Problem) -> int:
    """Return the bytes of the weight files that a problem loads; 0 where none are held."""
    return sum(model.weight_bytes for model in _held_of(problem))


def judged_bytes(problem: Problem) -> int:
    """Return the bytes of all copies of a problem's weights that judging one kernel takes.

    The reference, the kernel and the process in which the reference is timed have one each, and
    the reference's twin has one in fp64. 0 where none are held.
    """
    held_here = _held_of(problem)
    return sum(each.weight_bytes * (3 + 8 // _BYTES.get(_type_of(each), 4)) for each in held_here)


def modules_of(problem: Problem) -> tuple[str, ...]:
    """Return the modules of transformers that a problem's models need, as far as known.

    Importing them takes seconds, so a process that forks others imports them ahead.
    """
    if not uses_transformers(problem):
        return ()
    kinds = dict.fromkeys(filter(None, map(_kind_of, _held_of(problem))))
    own = (f"transformers.models.{kind}.modeling_{kind}" for kind in kinds)
    return ("transformers.models.auto.modeling_auto", *own)


def weight_types(problem: Problem) -> tuple[str, ...]:
    """Return the types of a problem's pretrained weights, such as ``float16``, if they are here.

    transformers loads weights in the type that the model's configuration names.
    """
    return tuple(filter(None, map(_type_of, _held_of(problem))))


def _held_of(problem: Problem) -> list[PretrainedModel]:
    return [model for name in models_of(problem) if (model := held(name))]


def _type_of(model: PretrainedModel) -> str:
    return _said(model, "dtype", "torch_dtype")


def _kind_of(model: PretrainedModel) -> str:
    """Return the name of a model's architecture, such as ``gpt_neo``; empty if it has none."""
    kind = _said(model, "model_type").replace("-", "_")
    return kind if kind.isidentifier() else ""


def _said(model: PretrainedModel, *keys: str) -> str:
    """Return the first text that a model's configuration has under one of some keys."""
    try:
        said = json.loads((model.folder / "config.json").read_text("utf-8"))
        return next((said[key] for key in keys if isinstance(said.get(key), str)), "")
    except (OSError, ValueError, AttributeError):
        return ""


def missing_models(problem: Problem) -> tuple[str, ...]:
    """Return the names of the models that a problem loads and that are not on this machine."""
    return tuple(name for name in models_of(problem) if held(name) is None)


def what_is_missing(problem: Problem) -> str:
    """Return a sentence on what a problem's models lack on this machine; empty if nothing."""
    if not models_of(problem):
        return ""
    if missing := missing_models(problem):
        return (
            f"problem {problem.id!r} loads {', '.join(missing)} from the Hugging Face hub, and "
            f"that is not on this machine; `kernelgym fetch {problem.id}` downloads it, or for a "
            "problem of your own `kernelgym fetch FILE` (needs a network)"
        )
    installed = installed_version("transformers", missing="none")
    if installed == "none" or int(installed.partition(".")[0]) < 5:
        return (
            f"problem {problem.id!r} loads a pretrained model by the package transformers of "
            f"version 5 or later, and here is {installed}; `pip install 'transformers>=5'`"
        )
    return ""


def check_models(problem: Problem) -> None:
    """Refuse a problem whose pretrained models are not on this machine.

    Raises:
        ProblemError: If a model, or the package that loads it, is missing.
    """
    if said := what_is_missing(problem):
        raise ProblemError(said)


def fetch(name: str) -> PretrainedModel:
    """Return a pretrained model that is on this machine, or download it.

    Raises:
        UsageError: If the hub does not give it, it has no PyTorch weights, or the disk is too full.
    """
    if (found := held(name)) is not None:
        return found
    if why := ask_hub(name, "model"):
        raise UsageError(
            f"the Hugging Face hub does not give model {name!r} ({why[:300]}); check its name and "
            "the network, and for a private or gated model set HF_TOKEN"
        )
    from huggingface_hub import HfApi, snapshot_download

    try:
        info = HfApi().model_info(name, files_metadata=True)
        sizes = {each.rfilename: each.size or 0 for each in info.siblings or ()}
        chosen = files_to_fetch(sizes)
        if all(map(_SMALL.fullmatch, chosen)):
            raise UsageError(
                f"model {name!r} has no PyTorch weights on the hub (model*.safetensors or "
                f"pytorch_model*.bin); it has: {', '.join(sorted(sizes))[:300] or 'no files'}"
            )
        _check_disk(name, sum(sizes[file] for file in chosen))
        folder = models_folder()
        snapshot_download(name, revision=info.sha, cache_dir=folder, allow_patterns=list(chosen))
    except UsageError:
        raise
    except Exception as error:  # the client raises errors of a dozen unrelated classes
        said = " ".join(str(error).split())[:300]
        raise UsageError(
            f"model {name!r} could not be downloaded: {type(error).__name__}: {said}; try again: "
            "files that are here already are kept"
        ) from error
    (_folder_of(name) / "refs").mkdir(exist_ok=True)
    write_whole(_folder_of(name) / "refs" / "main", str(info.sha))
    found = held(name)
    if found is None:
        raise UsageError(f"model {name!r} was downloaded to {folder}, and its files are not there")
    return found


def files_to_fetch(names: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a model's repository that loading it with PyTorch needs.

    Args:
        names: All files of the repository. Those in folders hold other formats and are left out.
    """
    listed = sorted(names)
    safe = [name for name in listed if _SAFE.fullmatch(name)]
    weights = safe or [name for name in listed if _PICKLED.fullmatch(name)]
    return (*(name for name in listed if _SMALL.fullmatch(name)), *weights)


def _check_disk(name: str, needed: int) -> None:
    folder = models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if needed + _SPARE_BYTES > free:
        raise UsageError(
            f"model {name!r} takes {needed / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} GB "
            "free; free some, or name another folder by KERNELGYM_CACHE"
        )


def _folder_of(name: str) -> Path:
    return models_folder() / f"models--{name.replace('/', '--')}"
