"""The scripted model that is given to this search and to OpenEvolve alike."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.page.models import beside_openevolve
from benchmarks.search.beside_openevolve import (
    NUMBER,
    TABLE_NAMES,
    ScriptedModel,
    changed,
    contest_of,
    serve,
    shown,
)
from benchmarks.search.gpu_kernels import OWN_TASKS
from benchmarks.search.hub import TABLES
from benchmarks.search.table import read_table
from kernelgym import Kernel, Problem, Verdict
from kernelgym.benchmark.run.openai_policy import EndpointSampling, OpenAIPolicy
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym_train.mcgs import Budget, SearchConfig, optimize
from kernelgym_train.mcgs.writing.writer import KernelWriter

PROBLEM, START = OWN_TASKS["softmax"]


def by_block(problem: Problem, kernel: Kernel) -> Verdict:
    """Judge larger blocks as faster, and what is no Python as not compiled."""
    if "deff" in kernel.source:
        return verdict("compile_error")
    return verdict("correct", speedup=int(dict(NUMBER.findall(kernel.source))["BLOCK"]) / 1000)


def test_answer_changes_a_number_of_the_kernel_that_openevolve_shows() -> None:
    prompt = (
        "# Current Program Information\n- Fitness: 1\n\n```python\nother = 1\n```\n\n"
        f"# Current Program\n```python\n{START.source}\n```\n\n# Task\nRewrite\n"
        "```python\n# Your rewritten program here\n```"
    )
    assert shown(prompt) == START.source
    answers = [ScriptedModel(seed).answer(prompt) for seed in range(8)]
    assert answers == [ScriptedModel(seed).answer(prompt) for seed in range(8)]
    assert len({NUMBER.search(answer) and tuple(NUMBER.findall(answer)) for answer in answers}) > 2
    assert all("class ModelNew" in answer for answer in answers)


def test_prompt_without_a_kernel_is_an_error() -> None:
    with pytest.raises(ValueError, match="shows no kernel"):
        shown("# The kernel to change\n\nnothing")


def test_numbers_stay_in_their_ranges() -> None:
    source = START.source
    for step in range(200):
        made = changed(source, str(step))
        source = source if "deff" in made else made
        numbers = {name: int(value) for name, value in NUMBER.findall(source)}
        assert 16 <= numbers["BLOCK"] <= 16384 and 1 <= numbers["num_warps"] <= 16


@pytest.mark.parametrize("name", TABLE_NAMES)
def test_contest_on_a_table_judges_by_its_times(name: str) -> None:
    table, contest = read_table(TABLES / f"{name}.csv"), contest_of(name, 3, "cuda:0", 1)
    share = contest.achieved(contest.start)["share"]
    assert share == contest.achieved(contest.tunable)["share"] < 1.0
    made = contest.changed(contest.start.source, "7")
    assert contest.achieved(Kernel(made, "cuda"))["share"] != share and "// knob" not in made
    with closing(contest.make()) as evaluator:
        found = evaluator.evaluate(contest.problem, contest.start)
    assert found.correct and found.speedup == pytest.approx(1.0)
    best = min((ms, config) for config, ms in table.times_ms.items() if ms is not None)[1]
    text = contest.start.source
    for column, value in zip(table.columns, best, strict=True):
        text = re.sub(rf"{column} = \d+;", f"{column} = {value};", text)
    assert contest.achieved(Kernel(text, "cuda"))["share"] == 1.0
    assert contest.achieved(Kernel(text.replace("constexpr", ""), "cuda"))["share"] == 0.0


def test_page_tells_the_median_over_seeds() -> None:
    shares = {"openevolve": (0.3, 0.5, 0.9), "auto": (0.8, 0.9, 1.0)}
    rows = [
        {"task": "t", "searcher": name, "seed": seed, "evaluations": 60, "share": share}
        for name, some in shares.items()
        for seed, share in enumerate(some)
    ]
    told = beside_openevolve({"rows": rows})
    assert "t: `openevolve` 0.50 (0.30 to 0.90), `auto` 0.90 (0.80 to 1.00)." in told
    assert "60 evaluations each" in told and "median of 3 seeds" in told


def test_page_tells_the_gain_on_a_gpu() -> None:
    rows = [
        {"task": "t", "searcher": name, "seed": 0, "evaluations": 40, "speedup": gain}
        for name, gain in (("openevolve", 1.5), ("auto", 20.25))
    ]
    told = beside_openevolve({"rows": rows})
    assert (
        "40 evaluations each, speedup over the start, one seed. t: `openevolve` 1.50, `auto`"
        in told
    )


def test_answer_stays_among_the_choices_of_a_table() -> None:
    contest = contest_of(TABLE_NAMES[0], 0, "cuda:0", 1)
    text = contest.start.source
    seen = set()
    for step in range(100):
        made = contest.changed(text, str(step))
        text = text if "deff" in made else made
        seen.add(text)
        assert set(re.findall(r"use_shmem = (\d+);", text)) <= {"0", "1"}
    assert len(seen) > 20


def test_search_reads_the_models_answers(tmp_path: Path) -> None:
    model = ScriptedModel()
    with (
        serve(model) as url,
        ScriptedEvaluator(by_block) as evaluator,
        KernelWriter(
            OpenAIPolicy("script", url, sampling=EndpointSampling(max_tokens=4096)),
            free_moves=True,
            repairs=0,
        ) as writer,
    ):
        config = SearchConfig(
            Budget(12, min_pred_gain=0.0),
            algo="mcgs",
            writer=writer,
            moves=("vectorize_global_loads",),
        )
        result = optimize(PROBLEM, START, evaluator, tmp_path, config)
    assert model.asked.total() > 6 and result["writer"]["outcomes"]["proposed"] > 6
    assert result["speedup"] > 1.5
