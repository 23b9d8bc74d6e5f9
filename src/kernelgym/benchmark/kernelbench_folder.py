"""Reading the folder of a KernelBench run: kernels, prompts, configuration, claimed results.

Contract: nothing in the folder is executed. ``generation_config.yaml`` holds PyYAML's tags of
Python types such as ``!!python/tuple``; they are read as plain data.
Files are ``level_{L}_problem_{P}_sample_{S}_kernel.py`` with ``_prompt.txt`` beside it, and
``eval_results.json``. A folder with ``generations/`` is of an older layout, read by
`kernelgym.benchmark.kernelbench_older_folder`. ``pass_at_k_results.json`` is not read: it follows
from the results, and its averages are too low where a problem has fewer samples than k.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.benchmark.claims import Claim
from kernelgym.benchmark.kernelbench_older_folder import (
    EVALUATIONS,
    GENERATIONS,
    older_kernels,
    older_results,
)
from kernelgym.errors import UsageError
from kernelgym.records.foreign_json import read_foreign_json

MODAL_WARNING = (
    "The claims come from KernelBench's Modal evaluation, which ignores `backend` and `precision`: "
    "kernels were judged as cuda in fp32, whatever they are."
)
_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_CONFIG, _RESULTS = "generation_config.yaml", "eval_results.json"

Place = tuple[int, int]
"""Key of a kernel: number of the problem, and number of the sample."""


@dataclass(frozen=True, slots=True)
class KernelBenchFolder:
    """Contents of a run's folder for one level."""

    path: Path
    level: int
    kernels: Mapping[Place, str]
    prompts: Mapping[Place, str]
    config: Mapping[str, Any]
    claims: Mapping[Place, Claim]
    """Claims about the folder's kernels."""
    notes: tuple[str, ...] = ()
    """Sentences on values that are read as missing."""

    @property
    def gaps(self) -> dict[int, list[int]]:
        """Numbers of missing samples, by number of the problem."""
        there: dict[int, set[int]] = defaultdict(set)
        for problem, sample in self.kernels:
            there[problem].add(sample)
        every = set(range(max(sample for _, sample in self.kernels) + 1))
        return {p: sorted(every - some) for p, some in sorted(there.items()) if every - some}


def read_folder(path: Path, level: int) -> KernelBenchFolder:
    """Return the contents of a run's folder for a level.

    Args:
        path: The folder, such as ``runs/NAME``.
        level: Level of the problems; files of other levels are ignored.

    Raises:
        UsageError: If there is no kernel of that level, a file cannot be read, or a sample is there
            twice.
    """
    if (path / GENERATIONS).is_dir():
        return _older_folder(path, level)
    every = kernel_files(path)
    files = {(number, sample): file for (of, number, sample), file in every.items() if of == level}
    if not files:
        others = sorted({of for of, _, _ in every})
        told = f"; it has kernels of level {', '.join(map(str, others))}" if others else ""
        raise UsageError(
            f"{path} holds no file level_{level}_problem_P_sample_S_kernel.py{told}; give the "
            "folder that KernelBench's generate_samples.py wrote, and its --level"
        )
    kernels = {place: read_text(file, "kernel") for place, file in sorted(files.items())}
    prompts = {}
    for place, file in files.items():
        beside = file.with_name(file.name.replace("_kernel.py", "_prompt.txt"))
        if beside.exists():
            prompts[place] = read_text(beside, "prompt")
    config, notes = _config(path / _CONFIG) if (path / _CONFIG).exists() else ({}, ())
    claims = {}
    if (path / _RESULTS).exists():
        warnings = (MODAL_WARNING,) if _is_modal(config) else ()
        remedy = "restore it, or remove it to import the kernels without KernelBench's results"
        data, more = read_foreign_json(path / _RESULTS, "results", remedy)
        notes += more
        claims = dict(_claims(path / _RESULTS, data, level, kernels, warnings))
    return KernelBenchFolder(path, level, kernels, prompts, config, claims, notes)


def _older_folder(path: Path, level: int) -> KernelBenchFolder:
    """Return the contents of a folder of the older layout.

    Raises:
        UsageError: If there is no kernel, or a file cannot be read.
    """
    kernels, notes = older_kernels(path, level)
    if not kernels:
        raise UsageError(
            f"{path / GENERATIONS} holds no kernel of level {level}: its files are P.json or "
            "level_L_problem_P.json, with the model's answers to problem P; "
            + ("; ".join(notes[:3]) or "give a run's folder, runs/NAME")
        )
    config, more = _config(path / _CONFIG) if (path / _CONFIG).exists() else ({}, ())
    results, odd = older_results(path, level)
    warnings = (MODAL_WARNING,) if _is_modal(config) else ()
    claims = dict(_claims(path / EVALUATIONS, results, level, kernels, warnings))
    return KernelBenchFolder(path, level, kernels, {}, config, claims, (*notes, *more, *odd))


def kernel_files(path: Path) -> dict[tuple[int, int, int], Path]:
    """Return the files of a folder's kernels by (level, problem's number, sample).

    Raises:
        UsageError: If the folder cannot be read, or holds a sample twice.
    """
    try:
        files = sorted(path.iterdir())
    except OSError as error:
        raise UsageError(
            f"cannot read folder {str(path)!r} ({error.strerror}); give a run's folder, runs/NAME"
        ) from None
    found: dict[tuple[int, int, int], Path] = {}
    for file in files:
        if (match := _KERNEL.fullmatch(file.name)) is None:
            continue
        level, problem, sample = map(int, match.groups())
        other = found.setdefault((level, problem, sample), file)
        if other is not file:
            raise UsageError(
                f"{path} holds sample {sample} of problem {problem} twice: {other.name} and "
                f"{file.name}; remove one of them"
            )
    return found


def read_text(file: Path, what: str) -> str:
    """Return the text of a file.

    Raises:
        UsageError: If it cannot be read, or is not UTF-8 text.
    """
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} {str(file)!r} is not UTF-8 text (byte {error.start}); convert or remove it"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {what} {str(file)!r}: {error.strerror}") from None


def _config(file: Path) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return a configuration as plain data, and sentences on numbers that are not finite.

    Tags of Python types are dropped.
    """
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """A safe loader that ignores tags of Python types."""

    def plain(loader: Any, suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        return loader.construct_scalar(node)

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", plain)
    try:
        found = yaml.load(read_text(file, "configuration"), Loader)
    except yaml.YAMLError as error:
        told = " ".join(str(error).split())
        raise UsageError(f"{file} is not YAML: {told[:200]}") from None
    config = {str(k): v for k, v in found.items()} if isinstance(found, dict) else {}
    odd = [k for k, v in config.items() if isinstance(v, float) and not math.isfinite(v)]
    notes = tuple(f"{file.name}: {k} is {config.pop(k)}; it is read as missing" for k in odd)
    return config, notes


def _is_modal(config: Mapping[str, Any]) -> bool:
    return any(str(value).lower() == "modal" for value in config.values())


def _claims(
    file: Path, data: Any, level: int, kernels: Mapping[Place, str], warnings: tuple[str, ...]
) -> Iterator[tuple[Place, Claim]]:
    if not isinstance(data, dict):
        raise UsageError(f'{file} holds no results; it begins with {{"PROBLEM": [...]}}')
    seen: set[Place] = set()
    for number, entries in data.items():
        # Before several samples were known, a problem had one entry and not a list.
        for entry in entries if isinstance(entries, list) else [entries]:
            if not isinstance(entry, dict):
                raise UsageError(
                    f"{file}: the entry of problem {number} is {json.dumps(entry)[:60]}, not an "
                    "object with sample_id, compiled and correctness; remove or restore it"
                )
            try:
                place = int(number), int(entry["sample_id"])
                runtime = float(entry.get("runtime") or -1.0)
                metadata = entry.get("metadata") or {}
                claim = Claim(
                    f"KernelBench/L{level}/{place[0]}",
                    place[1],
                    bool(entry["compiled"]),
                    bool(entry["correctness"]),
                    runtime if runtime > 0.0 else None,
                    None,
                    dict(metadata),
                    warnings,
                )
            except KeyError as error:
                raise UsageError(
                    f"{file}: the entry of problem {number} has no {error}; remove or restore it"
                ) from None
            except (TypeError, ValueError, OverflowError) as error:
                raise UsageError(
                    f"{file}: the entry of problem {number} makes no sense ({error}); remove or "
                    "restore it"
                ) from None
            if place in seen:
                raise UsageError(
                    f"{file} holds sample {place[1]} of problem {number} twice; remove one of them"
                )
            seen.add(place)
            if place not in kernels:
                why = "The folder has no kernel of this sample."
                claim = dataclasses.replace(claim, warnings=(*warnings, why))
            yield place, claim
