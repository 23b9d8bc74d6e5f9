"""KernelBench's older layout: answers and results of a problem in a JSON file each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelgym.benchmark.interchange.importing import import_run
from kernelgym.benchmark.kernelbench_folder import read_folder
from kernelgym.errors import UsageError
from kernelgym.suites.kernelbench import KernelBenchSuite

SOURCE = "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n"
ANSWER = f"A thought.\n```python\n{SOURCE}```\nand then\n```python\nother = 1\n```\n"
RESULT = {"compiled": True, "correctness": True, "runtime": 1.5, "metadata": {}}


def folder_of(path: Path, answers: dict[str, Any], results: dict[str, Any]) -> Path:
    for name, files in (("generations", answers), ("evaluations", results)):
        (path / name).mkdir(parents=True)
        for stem, data in files.items():
            (path / name / f"{stem}.json").write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    "answer",
    [
        ANSWER,
        {"response": ANSWER},
        [ANSWER],
        {"samples": [{"sample_id": 0, "text": ANSWER}]},
        {"kernel": SOURCE, "response": "not this"},
        SOURCE,
        ANSWER.partition("```\nand")[0],  # cut off before the fence is closed
    ],
)
@pytest.mark.parametrize("result", [RESULT, [RESULT], {"result": RESULT}, {"samples": [RESULT]}])
def test_forms_of_answers_and_results_are_read(answer: Any, result: Any, tmp_path: Path) -> None:
    found = read_folder(folder_of(tmp_path / "theirs", {"2": answer}, {"2": result}), 1)
    assert found.kernels == {(2, 0): SOURCE}
    assert found.claims[2, 0].correct and found.claims[2, 0].runtime_ms == 1.5


def test_samples_and_problems_keep_their_numbers(tmp_path: Path) -> None:
    answers = {
        "10": [{"sample_id": 1, "text": ANSWER}, {"sample_id": 0, "text": "no code"}],
        "level_1_problem_2": ANSWER,
        "level_2_problem_3": ANSWER,
    }
    results = {"10": [{**RESULT, "sample_id": 1, "correctness": False}]}
    found = read_folder(folder_of(tmp_path / "theirs", answers, results), 1)
    assert list(found.kernels) == [(2, 0), (10, 1)]
    assert [(place, claim.correct) for place, claim in found.claims.items()] == [((10, 1), False)]
    assert found.notes == ("sample 0 of problem 10 has no code; it is left out",)
    assert found.gaps == {2: [1], 10: [0]}


def test_older_folder_becomes_a_run(
    tmp_path: Path, kernelbench_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(kernelbench_checkout))
    assert KernelBenchSuite().problems(1)
    theirs = folder_of(tmp_path / "theirs", {"1": ANSWER}, {"1": RESULT})
    out = tmp_path / "ours"
    assert import_run(read_folder(theirs, 1), out, language="triton", ruleset="kernelbench") == 1
    (row,) = (json.loads(line) for line in (out / "generations.jsonl").read_text().splitlines())
    assert (row["problem"], row["kernel"]) == ("KernelBench/L1/1", SOURCE)


@pytest.mark.parametrize(
    ("answers", "results", "error"),
    [
        ({}, {}, "holds no kernel of level 1"),
        ({"1": "no code"}, {}, "sample 0 of problem 1 has no code"),
        ({"1": {"answer": ANSWER}}, {}, "an answer is a text, or an object with response"),
        ({"1": [{"sample_id": 0, "text": ANSWER}] * 2}, {}, "or is there twice"),
        ({"1": ANSWER}, {"1": "fine"}, "a result is an object with compiled and correctness"),
        ({"1": ANSWER}, {"1": {"correctness": True}}, "has no 'compiled'"),
    ],
)
def test_unknown_form_is_refused_with_its_file(
    answers: dict[str, Any], results: dict[str, Any], error: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=error):
        read_folder(folder_of(tmp_path / "theirs", answers, results), 1)
