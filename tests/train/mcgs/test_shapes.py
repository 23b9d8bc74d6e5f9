"""Searches over a kernel spec: all shapes count, and hidden ones stay hidden."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import Kernel, Problem, UsageError, Verdict
from kernelgym.evaluators.abilities import Builds
from kernelgym.suites.spec import KernelSpec
from kernelgym.suites.spec_files import spec_from
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Build, Finding
from kernelgym.verdict import HOST_BUSY, Stages
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.command import run_search
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.proposing import Proposal, RuleProposer
from kernelgym_train.mcgs.search import optimize_spec
from kernelgym_train.mcgs.shapes import ShapesEvaluator, TaskShape, together
from kernelgym_train.mcgs.task import SearchTask, task_of_spec
from kernelgym_train.mcgs.variant import Variant, read_variant
from support import searches
from support.searches import searched
from support.specs import PRODUCT, SPEC, changed, written


def spec(**changes: Any) -> KernelSpec:
    return spec_from(changed(PRODUCT, **changes), Path())


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    """Judge by the table; at n=96 only blocks count, at n=1237 one kind of kernel is wrong."""
    if "n=96" in problem.id:
        return verdict("correct", speedup=0.01 * (4.0 if "vector_size" in kernel.source else 1.0))
    if "n=1237" in problem.id:
        wrong = "vector_size(32)" in kernel.source
        return verdict("wrong", message="differs at n=1237") if wrong else verdict("correct")
    if "-mprefer-vector-width=512" in kernel.source:
        return verdict("wrong", message="differs")
    return verdict("correct", speedup=searches.speedup(kernel))


def found(outdir: Path, task: SearchTask, judge: ScriptedEvaluator, **given: Any) -> dict[str, Any]:
    return searched(task, judge, outdir, **{"budget": Budget(30), "algo": "best_first", **given})


def test_value_is_the_weighted_sum_over_tuned_shapes(tmp_path: Path) -> None:
    judge = ScriptedEvaluator(judged)
    result = found(tmp_path, task_of_spec(spec()), judge)
    best = Kernel((tmp_path / result["best"]["path"]).read_text(), "cpp")
    gains = {"n=48": searches.speedup(best) / 0.01, "n=96": 4.0}
    assert "vector_size(16)" in best.source and "vector_size(32)" not in best.source
    rows = {row["name"]: row for row in result["shapes"]}
    assert [row["weight"] for row in result["shapes"]] == [0.75, 0.25, 0.0]
    for name, gain in gains.items():
        assert rows[name]["speedup"] == pytest.approx(gain)
    assert rows["n=1237"]["speedup"] is None and rows["n=1237"]["role"] == "hidden"
    total = 0.75 * math.log(gains["n=48"]) + 0.25 * math.log(gains["n=96"])
    assert math.log(result["speedup"]) == pytest.approx(total)
    state = json.loads((tmp_path / "kernels" / "product" / "search_state.json").read_text())
    assert state["nodes"][result["best"]["state"]]["value"] == pytest.approx(total)


def test_wrong_at_a_hidden_shape_is_no_node(tmp_path: Path) -> None:
    judge = ScriptedEvaluator(judged)
    found(tmp_path, task_of_spec(spec()), judge)
    folder = tmp_path / "kernels" / "product"
    state = json.loads((folder / "search_state.json").read_text())
    wide = [
        key.parent.name
        for key in folder.glob("variants/*/kernel_module.py")
        if "vector_size(32)" in key.read_text()
    ]
    assert wide and len(state["nodes"]) > 5
    assert not set(wide) & set(state["nodes"])


def test_the_last_check_judges_every_shape_from_disk(tmp_path: Path) -> None:
    judge = ScriptedEvaluator(judged)
    result = found(tmp_path, task_of_spec(spec()), judge)
    last = judge.judged[-3:]
    assert {job.problem.name for job in last} == {"n=48", "n=96", "n=1237"}
    assert {job.kernel.digest for job in last} == {result["best"]["digest"]}
    assert len({*judge.seeds[-3:]}) == 1 and judge.seeds[-1] == result["best"]["seed"]
    assert judge.seeds[-1] not in judge.seeds[:-3]


def test_failing_the_last_check_keeps_the_start(tmp_path: Path) -> None:
    task = task_of_spec(spec())
    judge = ScriptedEvaluator()

    def late(problem: Problem, kernel: Kernel) -> Verdict:
        folder = tmp_path / "kernels" / "product" / "best"
        exported = folder.is_symlink() and "variants" in str(folder.readlink())
        if exported and "n=1237" in problem.id and kernel != task.start:
            return verdict("wrong")
        return judged(problem, kernel)

    judge = ScriptedEvaluator(late)
    result = found(tmp_path, task, judge)
    assert result["speedup"] == 1.0 and result["best"]["digest"] == task.start.digest
    assert [row["speedup"] for row in result["shapes"]] == [1.0, 1.0, None]


SHOWN = re.compile(r"differs \(at n=48\)|kept secret")
KEPT = re.compile(r"\b1237\b|n=96|(?<!\w)(?:96, 96|rows=)")


class Looking(RuleProposer):
    """A proposer that reads all that it is given, and every file of the search."""

    def __init__(self, start: Variant, outdir: Path) -> None:
        super().__init__(start)
        self.outdir, self.looks, self.seen = outdir, 0, set[str]()
        self.asked = set[tuple[Variant, str, int]]()

    def look(self, variant: Variant) -> None:
        texts = [repr(variant), *(repr(each) for each in vars(self).values())]
        files = [path for path in self.outdir.rglob("*") if path.is_file()]
        self.looks += 1
        for text in [*texts, *map(str, files), *(path.read_text() for path in files)]:
            self.seen |= set(SHOWN.findall(text)) | set(KEPT.findall(text))

    def propose(self, variant: Variant, move: str, attempt: int) -> Proposal | None:
        if (variant, move, attempt) not in self.asked:
            self.asked.add((variant, move, attempt))
            self.look(variant)
        return super().propose(variant, move, attempt)


def test_a_proposer_that_looks_sees_no_hidden_shape(tmp_path: Path) -> None:
    task = task_of_spec(spec())
    proposer = Looking(read_variant(task.start), tmp_path)
    judge = ScriptedEvaluator(judged)
    result = found(tmp_path, task, judge, proposer=proposer, budget=Budget(20))
    assert result["failures"]["wrong"] >= 2 and proposer.looks > 10
    # What a shape that is shown said is found where it looks; of the others nothing is.
    assert proposer.seen == {"differs (at n=48)", "kept secret"}


def test_an_evaluator_without_the_tolerances_is_refused(tmp_path: Path) -> None:
    own = spec(contract__tolerances={"atol": 1e-3, "rtol": 1e-3})
    with pytest.raises(UsageError, match=r"strict\+tolerances\(atol=0.001,rtol=0.001\)@.*strict@"):
        optimize_spec(own, ScriptedEvaluator(judged), tmp_path)
    judge = ScriptedEvaluator(judged, ruleset=own.rules("strict"))
    result = optimize_spec(own, judge, tmp_path, SearchConfig(budget=Budget(2)))
    assert result["context"]["ruleset"] == own.rules("strict").label


def test_a_contract_can_allow_approximate_moves(tmp_path: Path) -> None:
    result = found(
        tmp_path,
        task_of_spec(spec(contract__allow_approximate=True)),
        ScriptedEvaluator(judged),
    )
    assert result["approximate"] is True


def test_tasks_differ_by_their_shapes() -> None:
    tasks = [
        task_of_spec(spec()),
        task_of_spec(spec(contract__shapes__2__axes={"n": 1238})),
        task_of_spec(spec(contract__shapes__0__weight=2)),
        task_of_spec(spec(contract__shapes__1__role="tune")),
    ]
    assert len({task.digest for task in tasks}) == len(tasks)
    assert tasks[0].problem == tasks[0].shapes[0].problem


SHAPES = st.lists(
    st.tuples(st.floats(0.1, 10), st.floats(0.01, 100), st.floats(0.5, 1)), min_size=1, max_size=5
)


@given(SHAPES)
def test_speedups_add_up_in_logarithms(rows: Sequence[tuple[float, float, float]]) -> None:
    whole = sum(weight for weight, _, _ in rows)
    verdicts = [
        (
            TaskShape(str(number), Problem("p", "s", 0, "p", "x"), weight / whole, "tune"),
            verdict("correct", speedup=speedup, speedup_low=speedup * low),
        )
        for number, (weight, speedup, low) in enumerate(rows)
    ]
    timing = together(verdicts).timing
    assert timing is not None
    expected = sum(weight / whole * math.log(speedup) for weight, speedup, _ in rows)
    assert math.log(timing.speedup) == pytest.approx(expected, abs=1e-9)
    assert min(low for *_, low in rows) - 1e-9 <= timing.speedup_low / timing.speedup <= 1 + 1e-9
    assert timing.reference_ms / timing.kernel_ms == pytest.approx(timing.speedup)


def test_no_shape_is_judged_after_a_failure() -> None:
    task = task_of_spec(spec())
    judge = ScriptedEvaluator(lambda problem, kernel: verdict("runtime_error"))
    made = ShapesEvaluator(judge, task.problem, task.shapes)
    assert made.evaluate(task.problem, task.start).status == "runtime_error"
    assert len(judge.judged) == 1
    other = EXAMPLES["softmax"][0]
    made.evaluate(other, task.start)
    assert judge.judged[-1].problem == other and len(judge.judged) == 2


def test_builds_and_files_are_the_evaluators_own(tmp_path: Path) -> None:
    class Building(ScriptedEvaluator):
        def build(self, kernel: Kernel) -> Build:
            return Build(digest=kernel.digest)

        def artifacts(self, kernel: Kernel, *, assembly: bool = False) -> dict[str, bytes]:
            return {"extension.so": kernel.digest.encode()}

    task = task_of_spec(spec())
    plain = ShapesEvaluator(ScriptedEvaluator(judged), task.problem, task.shapes)
    assert plain.ability(Builds) is None
    judge = Building(judged)
    result = found(tmp_path, task, judge, budget=Budget(5))
    built = (tmp_path / result["best"]["path"]).with_name("extension.so")
    assert built.read_text() == result["best"]["digest"]
    folders = {path.parent.name for path in tmp_path.rglob("variants/*/extension.so")}
    assert len(folders) == result["evaluations"] == 5, "one of each variant"
    # Settings of one build: what is judged calls one of many.
    assert any("namespace setting_1 " in job.kernel.source for job in judge.judged)


KEPT_ENDS = {
    "wrong": "wrong",
    "runtime_error": "wrong",
    "timeout": "wrong",
    "compile_error": "wrong",
    "rejected": "wrong",
    "unavailable": "unavailable",
}


@pytest.mark.parametrize(("status", "told"), KEPT_ENDS.items())
def test_how_a_kept_shape_ends_is_not_told(status: str, told: str) -> None:
    def ends(problem: Problem, kernel: Kernel) -> Verdict:
        if "n=1237" not in problem.id:
            return dataclasses.replace(verdict("correct"), wall_s=3.0, stages=Stages(check_s=2.0))
        made = verdict(status, message="at 1237", findings=(Finding("x", "uses n=1237"),))
        return dataclasses.replace(made, wall_s=50.0, stages=Stages(check_s=40.0), log="1237")

    task = task_of_spec(spec())
    made = ShapesEvaluator(ScriptedEvaluator(ends), task.problem, task.shapes)
    said = made.evaluate(task.problem, task.start)
    assert said.status == told and "1237" not in json.dumps(said.to_dict())
    assert (
        said.compiled == (told == "wrong")
        and said.wall_s == 3.0
        and said.stages == Stages(check_s=2.0)
    )
    assert made.last_s == 56.0


def test_correct_at_kept_shapes_tells_no_more() -> None:
    task = task_of_spec(spec())
    kept = [dataclasses.replace(shape, role="both") for shape in task.shapes]

    def says(problem: Problem, kernel: Kernel) -> Verdict:
        made = verdict(
            "correct", speedup=1.0, message="n=1237", findings=(Finding("x", "uses n=1237"),)
        )
        return dataclasses.replace(made, wall_s=50.0, log="1237", max_abs_error=3.0)

    made = ShapesEvaluator(ScriptedEvaluator(says), task.problem, kept)
    said = made.evaluate(task.problem, task.start)
    assert said.correct and said.timing is not None and "1237" not in json.dumps(said.to_dict())
    assert said.wall_s == said.max_abs_error == 0.0 and said.trials == 1


def test_a_hidden_shape_makes_no_host_busy() -> None:
    task = task_of_spec(spec())

    def judge(busy_at: str) -> ScriptedEvaluator:
        busy = (Finding(HOST_BUSY, "9 pairs"),)
        return ScriptedEvaluator(
            lambda problem, kernel: verdict(
                "correct", findings=busy if busy_at in problem.id else ()
            )
        )

    for busy_at, told in (("n=1237", False), ("n=96", True)):
        made = ShapesEvaluator(judge(busy_at), task.problem, task.shapes)
        assert bool(made.evaluate(task.problem, task.start).findings) == told


def test_time_at_kept_shapes_counts_for_the_limit(tmp_path: Path) -> None:
    """The limit holds, though verdicts leave out hidden shapes."""

    def slow(problem: Problem, kernel: Kernel) -> Verdict:
        wall_s = 20.0 if "n=1237" in problem.id else 1.0
        return dataclasses.replace(judged(problem, kernel), wall_s=wall_s)

    judge = ScriptedEvaluator(slow)
    took = lambda: sum(20.0 if "n=1237" in job.problem.id else 1.0 for job in judge.judged)  # noqa: E731
    result = found(
        tmp_path, task_of_spec(spec()), judge, budget=Budget(90, seconds=1500), clock=took
    )
    assert result["stopped"] == "seconds" and result["speedup"] > 1.0
    assert 700 <= result["seconds"] <= 1500
    events = (tmp_path / "kernels" / "product" / "events.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in events]
    assert {row["wall_s"] for row in rows if row["event"] == "judged"} <= {1.0, 0.0}
    assert rows[1]["wall_s"] == 22.0 and rows[1]["shown_wall_s"] == 1.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"contract__tensors__0__shape": ["depth"]}, "'depth', which is not defined"),
        ({"source": "void scaled(torch::Tensor x) {}"}, "nothing writes the output"),
        ({"contract__shapes__0__axes": {"rows": 10**12}}, "memory budget"),
        ({"reference": None}, '"reference" is missing'),
    ],
)
def test_bad_specs_are_refused_before_a_search(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = written(tmp_path, changed(SPEC, **change))
    with pytest.raises(UsageError, match=why):
        run_search([f"input={path}", f"outdir={tmp_path / 'out'}"])
    assert not (tmp_path / "out").exists()


def test_a_plan_lists_the_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, PRODUCT)
    assert run_search([f"input={path}"], dry_run=True) == 0
    out = capsys.readouterr().out
    assert "shape n=48: tune, 75% of the value" in out and "register_block: " in out


@pytest.mark.slow
def test_a_real_search_judges_every_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).parents[3] / "examples" / "row_softmax.json"
    assert run_search([f"input={path}", f"outdir={tmp_path}", "budget_builds=3"]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert len(result["shapes"]) == 3 and result["shapes"][2]["speedup"] is None
    assert capsys.readouterr().out.startswith("row_softmax: ")
