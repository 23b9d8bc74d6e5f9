"""Reading KernelBench's older layout: a JSON file of answers and one of results for each problem.

::

    runs/NAME/generations/P.json    raw answers of the model to problem P
    runs/NAME/evaluations/P.json    their results

Contract: the layout has no published schema, so the forms that are taken are named here. A file
holds one sample, a list of samples, or an object with such a list under ``samples``. A sample of an
answer is a text, or an object with the text or the code under one of `TEXT_NAMES` and `CODE_NAMES`.
The kernel of a text is its first fenced block, as KernelBench takes it; a text without one is the
kernel if it defines `ModelNew`. A sample of results is an entry of ``eval_results.json``, also
under ``result``. ``sample_id`` is the place in the list if it is not given. Anything else is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.records.foreign_json import read_foreign_json

GENERATIONS, EVALUATIONS = "generations", "evaluations"
TEXT_NAMES = ("response", "raw_response", "generation", "completion", "output", "text", "content")
"""Names under which a sample may hold the model's answer."""
CODE_NAMES = ("kernel", "kernel_code", "kernel_src", "code")
"""Names under which a sample may hold the kernel itself."""
_FILE = re.compile(r"(?:level_(?P<level>\d+)_)?(?:problem_)?(?P<problem>\d+)\.json")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_REMEDY = "restore it, or remove it"


def older_kernels(path: Path, level: int) -> tuple[dict[tuple[int, int], str], tuple[str, ...]]:
    """Return kernels in ``generations/`` by (problem, sample), and notes on what is missing.

    Args:
        path: The run's folder.
        level: Level of the problems; files that name another are left out.

    Raises:
        UsageError: If a file cannot be read or has an unknown form.
    """
    found: dict[tuple[int, int], str] = {}
    notes: list[str] = []
    for file, problem in _files(path / GENERATIONS, level):
        data, odd = read_foreign_json(file, "answers", _REMEDY)
        notes += odd
        for sample, entry in _samples(data, file):
            source = _kernel(entry, file)
            if source is None:
                notes.append(f"sample {sample} of problem {problem} has no code; it is left out")
            else:
                found[problem, sample] = source
    return dict(sorted(found.items())), tuple(notes)


def older_results(path: Path, level: int) -> tuple[dict[str, list[Any]], tuple[str, ...]]:
    """Return an older run's ``evaluations/`` as ``eval_results.json``; sentences on odd numbers.

    Args:
        path: The run's folder.
        level: Level of the problems; files that name another are left out.

    Raises:
        UsageError: If a file cannot be read or has an unknown form.
    """
    found: dict[str, list[Any]] = {}
    notes: list[str] = []
    for file, problem in _files(path / EVALUATIONS, level):
        data, odd = read_foreign_json(file, "results", _REMEDY)
        notes += odd
        entries = found.setdefault(str(problem), [])
        for sample, entry in _samples(data, file):
            inner = entry.get("result", entry) if isinstance(entry, Mapping) else entry
            if not isinstance(inner, Mapping):
                raise UsageError(
                    f"{file}: a result is an object with compiled and correctness; {_REMEDY}"
                )
            entries.append({**inner, "sample_id": sample})
    return found, tuple(notes)


def _files(folder: Path, level: int) -> Iterator[tuple[Path, int]]:
    """Yield the files of a folder with the numbers of their problems, by number."""
    if not folder.is_dir():
        return
    named = [(path, match) for path in folder.iterdir() if (match := _FILE.fullmatch(path.name))]
    for path, match in sorted(named, key=lambda each: int(each[1]["problem"])):
        if int(match["level"] or level) == level:
            yield path, int(match["problem"])


def _samples(data: Any, file: Path) -> Iterator[tuple[int, Any]]:
    """Yield the samples of a file with their numbers."""
    if isinstance(data, Mapping) and isinstance(data.get("samples"), list):
        data = data["samples"]
    seen: set[int] = set()
    for place, entry in enumerate(data if isinstance(data, list) else [data]):
        number = entry.get("sample_id", place) if isinstance(entry, Mapping) else place
        if not isinstance(number, int) or number < 0 or number in seen:
            raise UsageError(
                f"{file}: sample_id {number!r} is not a number of a sample, or is there twice; "
                f"{_REMEDY}"
            )
        seen.add(number)
        yield number, entry


def _kernel(entry: Any, file: Path) -> str | None:
    """Return the kernel of a sample; None if its answer has no code."""
    text = entry if isinstance(entry, str) else None
    if isinstance(entry, Mapping):
        for name in CODE_NAMES:
            if isinstance(entry.get(name), str):
                return str(entry[name])
        text = next((entry[name] for name in TEXT_NAMES if isinstance(entry.get(name), str)), None)
    if text is None:
        raise UsageError(
            f"{file}: an answer is a text, or an object with {', '.join(TEXT_NAMES)}, or code "
            f"under {', '.join(CODE_NAMES)}; write it in such a form"
        )
    if (fenced := _FENCE.search(text)) is not None:
        return fenced[1].rstrip() + "\n"
    return text if "class ModelNew" in text else None
