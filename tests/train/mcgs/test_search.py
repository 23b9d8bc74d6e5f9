"""A whole search over a table: what is found, what is written, and what a kill leaves."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym import Kernel, LocalEvaluator, UsageError, duel
from kernelgym.evaluators.duel import Duel
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Problem, Verdict
from kernelgym_train.mcgs import Budget, SearchConfig, optimize
from kernelgym_train.mcgs.algorithms import ALGORITHMS
from kernelgym_train.mcgs.events import SearchLog
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.state_json import plain_state
from kernelgym_train.mcgs.variant import read_variant, state_key
from support import searches
from support.searches import rows


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without what differs from run to run: its time, and the drawn seed."""
    best = {name: value for name, value in result["best"].items() if name != "seed"}
    return {name: value for name, value in result.items() if name != "seconds"} | {"best": best}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_search_finds_what_the_table_holds(algo: str, tmp_path: Path) -> None:
    judge = searches.evaluator()
    result = searches.run(tmp_path, judge, 24, algo=algo)
    assert result["evaluations"] == 24 and result["stopped"] == "budget_builds"
    best = Kernel((tmp_path / result["best"]["path"]).read_text(), "cpp")
    assert best.digest == result["best"]["digest"]
    assert result["speedup"] == pytest.approx(searches.speedup(best) / 0.01)
    least = {"random": 1.5, "tpe": 2.0}
    assert result["speedup"] > least.get(algo, 15.0)
    assert result["speedup_low"] <= result["speedup"] <= result["speedup_high"]
    judged = [row["key"] for row in rows(tmp_path) if row["event"] == "judged"]
    assert len(judged) == len(set(judged)) == 24
    assert result["failures"].get("wrong", 0) == sum(
        row["event"] == "judged" and row["status"] == "wrong" for row in rows(tmp_path)
    )


def test_search_folder_holds_what_is_documented(tmp_path: Path) -> None:
    result = searches.run(tmp_path, searches.evaluator())
    folder = tmp_path / "kernels" / "matmul"
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert (folder / "best").is_symlink() and (folder / "baseline" / "kernel_module.py").exists()
    names = {"control.json", "kernel_module.py", "candidate.diff", "result.json"}
    for variant in (folder / "variants").iterdir():
        assert {path.name for path in variant.iterdir()} == names
    state = json.loads((folder / "search_state.json").read_text())
    assert state["evaluations"] == 12 and result["best"]["state"] in state["nodes"]
    assert "register\\_block" in (folder / "trace.md").read_text()
    assert "register_block" in (folder / "report.html").read_text()
    base = tmp_path / "apply"
    base.mkdir()
    shutil.copy(folder / "baseline" / "kernel_module.py", base)
    diff = folder / "best" / "candidate.diff"
    subprocess.run(["git", "apply", str(diff.resolve())], cwd=base, check=True)
    assert (base / "kernel_module.py").read_text() == (folder / "best/kernel_module.py").read_text()


def test_search_equal_verdicts_give_equal_searches(tmp_path: Path) -> None:
    one = searches.run(tmp_path / "a", searches.evaluator(), workers=3, algo="mcgs")
    other = searches.run(tmp_path / "b", searches.evaluator(), workers=3, algo="mcgs")
    assert plain(one) == plain(other)
    drop = ("seconds", "crc", "result", "took_s")
    stories = [
        [{k: v for k, v in row.items() if k not in drop} for row in rows(tmp_path / name)]
        for name in ("a", "b")
    ]
    assert stories[0] == stories[1]


@pytest.mark.slow
def test_search_hash_seed_does_not_matter(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from support import searches\n"
        "r = searches.run(Path(sys.argv[1]), searches.evaluator(), 10, algo='mcgs')\n"
        "print(r['best']['digest'], r['duplicates'], r['speedup'])"
    )
    said = set()
    for number in ("1", "2"):
        path = os.pathsep.join(path for path in sys.path if path)
        env = {**os.environ, "PYTHONHASHSEED": number, "PYTHONPATH": path}
        command = [sys.executable, "-c", code, str(tmp_path / number)]
        said.add(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
    assert len(said) == 1


@pytest.mark.parametrize("algo", ["best_first", "mcgs"])
def test_search_replayed_events_are_the_live_state(algo: str, tmp_path: Path) -> None:
    result = searches.run(tmp_path, searches.evaluator(), algo=algo)
    start = read_variant(searches.TASK.start)
    replayed = SearchState.begin(state_key(start), start)
    with SearchLog.open(tmp_path / "kernels" / "matmul" / "events.jsonl") as log:
        for event in log.past:
            replayed.take(event)
    assert replayed.finished == result
    assert replayed.evaluations == result["evaluations"]
    digest = replayed.variants[replayed.minimal or replayed.incumbent].kernel().digest
    assert digest == result["best"]["digest"]
    state = json.loads((tmp_path / "kernels" / "matmul" / "search_state.json").read_text())
    assert plain_state(replayed) == state


TOLD_APART = ("number", "seconds", "crc", "result", "took_s", "attempt")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Path]:
    """Return folders of whole searches, by (algorithm, workers)."""
    found = {}
    for case in itertools.product(["best_first", "mcgs", "tpe"], [1, 3]):
        found[case] = tmp_path_factory.mktemp("whole")
        searches.run(found[case], searches.evaluator(), 10, algo=case[0], workers=case[1])
    return found


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_search_cut_at_any_byte_is_the_unbroken_one(
    unbroken: dict[tuple[str, int], Path], data: st.DataObject
) -> None:
    algo, workers = case = data.draw(st.sampled_from(sorted(unbroken)))
    whole = unbroken[case]
    log = (whole / "kernels" / "matmul" / "events.jsonl").read_bytes()
    first = log.index(b"\n") + 1
    length = data.draw(st.integers(first, len(log) - 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels" / "matmul" / "events.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(log[:length])
        judge = searches.evaluator()
        resumed = searches.run(Path(folder), judge, 10, algo=algo, workers=workers, resume=True)
        assert plain(resumed) == plain(json.loads((whole / "result.json").read_text()))
        stories = [
            [{k: v for k, v in row.items() if k not in TOLD_APART} for row in rows(each)]
            for each in (whole, Path(folder))
        ]
        assert stories[0] == stories[1]
        kept = [json.loads(line) for line in log[:length].splitlines()[:-1]]
        verdicts = {row["key"] for row in kept if row["event"] == "judged"}
        new = [row["key"] for row in rows(Path(folder))[len(kept) :] if row["event"] == "judged"]
        assert not verdicts & set(new), "no kernel whose verdict is there is judged again"


def test_search_speed_of_workers_does_not_matter(tmp_path: Path) -> None:
    stories = []
    for name in ("a", "b"):
        numbers = random.Random(name)

        def judged(problem: Problem, kernel: Kernel) -> Verdict:
            time.sleep(numbers.uniform(0.0, 0.02))  # noqa: B023
            return searches.judged(problem, kernel)

        judge = searches.evaluator(judged)
        searches.run(tmp_path / name, judge, 10, algo="mcgs", workers=3)
        stories.append(
            [{k: v for k, v in row.items() if k not in TOLD_APART} for row in rows(tmp_path / name)]
        )
    assert stories[0] == stories[1]


def test_search_without_gains_ends_by_patience(tmp_path: Path) -> None:
    judge = searches.evaluator(lambda problem, kernel: verdict("correct", speedup=0.5))
    short = Budget(40, patience=6)
    result = searches.run(tmp_path, judge, budget=short, workers=1)
    assert (result["stopped"], result["evaluations"]) == ("patience", 6)
    same = searches.run(tmp_path, searches.evaluator(), budget=short, workers=1, resume=True)
    assert same == result
    more = searches.run(tmp_path, judge, budget=Budget(40, patience=9), workers=1, resume=True)
    assert (more["stopped"], more["evaluations"]) == ("patience", 9)


def test_search_at_the_floor_ends(tmp_path: Path) -> None:
    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        said = searches.judged(problem, kernel)
        if said.timing is None or "-O3" not in kernel.source:
            return said
        timing = dataclasses.replace(said.timing, floor_ms=0.96 * said.timing.kernel_ms)
        return dataclasses.replace(said, timing=timing)

    result = searches.run(tmp_path, searches.evaluator(judged), 40, workers=1)
    assert result["stopped"] == "floor_share" and result["evaluations"] < 12


def test_search_on_a_busy_host_is_refused_if_asked(tmp_path: Path) -> None:
    speeds = iter([1.0, 1.3] + [1.0] * 400)

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        return verdict("correct", speedup=next(speeds))

    with pytest.raises(UsageError, match=r"two verdicts of the start differ by 30%, with a load"):
        searches.run(tmp_path, searches.evaluator(judged), require_quiet=True)
    assert not (tmp_path / "kernels" / "matmul").exists()
    speeds, said = iter([1.0, 1.3] + [1.0] * 400), []
    searches.run(tmp_path, searches.evaluator(judged), 2, say=said.append)
    assert any(line.startswith("warning: two verdicts") for line in said)


def test_search_finished_is_not_searched_again(tmp_path: Path) -> None:
    first = searches.run(tmp_path, searches.evaluator())
    judge = searches.evaluator()
    assert searches.run(tmp_path, judge, resume=True) == first
    assert not judge.judged


def test_search_finished_has_its_files_again(tmp_path: Path) -> None:
    """A kill may come between the last event and the files."""
    result = searches.run(tmp_path, searches.evaluator(), 8)
    files = [tmp_path / "result.json"]
    files += [tmp_path / "kernels/matmul" / name for name in ("result.json", "report.html")]
    before = [path.read_bytes() for path in files]
    for path in files:
        path.unlink()
    assert searches.run(tmp_path, searches.evaluator(), 8, resume=True) == result
    assert [path.read_bytes() for path in files] == before


def test_search_larger_budget_goes_on(tmp_path: Path) -> None:
    searches.run(tmp_path / "more", searches.evaluator(), 5, workers=1)
    more = searches.run(tmp_path / "more", searches.evaluator(), 12, workers=1, resume=True)
    searches.run(tmp_path / "once", searches.evaluator(), 12, workers=1)
    assert more["evaluations"] == 12 and more["stopped"] == "budget_builds"
    keys = [
        [row["key"] for row in rows(tmp_path / name) if row["event"] == "judged"]
        for name in ("more", "once")
    ]
    assert keys[0] == keys[1]


def test_search_ctrl_c_ends_it_in_order(tmp_path: Path) -> None:
    asked: list[str] = []

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        asked.append(kernel.digest)
        if len(asked) == 6:
            signal.raise_signal(signal.SIGINT)
        return searches.judged(problem, kernel)

    result = searches.run(tmp_path, searches.evaluator(judged), 40, workers=1)
    assert result["stopped"] == "interrupted" and 3 <= result["evaluations"] < 10
    assert result["speedup"] > 1.0 and (tmp_path / result["best"]["path"]).exists()
    resumed = searches.run(tmp_path, searches.evaluator(), 12, workers=1, resume=True)
    assert resumed["evaluations"] == 12


def test_search_ctrl_c_at_the_end_waits_for_the_check(tmp_path: Path) -> None:
    def compare(*args: Any, most: int, **given: Any) -> Duel:
        if most == 12:
            signal.raise_signal(signal.SIGINT)
        return duel(*args, most=most, **given)

    before = signal.getsignal(signal.SIGINT)
    result = searches.run(tmp_path, searches.evaluator(), 8, compare=compare)
    assert result["stopped"] == "budget_builds" and result["speedup"] > 1.0
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize("seconds", [180, 240, 300, 420])
def test_search_seconds_leave_time_for_the_end(seconds: int, tmp_path: Path) -> None:
    now = [0.0]

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        now[0] += 10.0
        fast = 3.0 if "-ffast-math" in kernel.source else 1.0
        # Times that differ from round to round, so that duels take all their rounds.
        factor = fast * searches.speedup(kernel) * (1.0 + 0.2 * (now[0] // 30 % 2))
        return dataclasses.replace(verdict("correct", speedup=factor), wall_s=10.0)

    result = searches.run(
        tmp_path,
        searches.evaluator(judged),
        budget=Budget(500, seconds=seconds),
        clock=lambda: now[0],
        workers=1,
        approximate=True,
    )
    assert result["stopped"] == "seconds"
    assert result["speedup"] > 1.0
    assert result["seconds"] <= seconds + 10, "what was being judged is all that is waited for"


def test_search_nothing_better_keeps_the_start(tmp_path: Path) -> None:
    judge = searches.evaluator(lambda problem, kernel: verdict("correct", speedup=0.5))
    result = searches.run(tmp_path, judge, 5)
    assert (result["speedup"], result["best"]["digest"]) == (1.0, searches.TASK.start.digest)
    assert (tmp_path / result["best"]["path"]).read_text() == searches.TASK.start.source


def test_search_lucky_verdict_is_not_promoted(tmp_path: Path) -> None:
    """One verdict says 3x; the kernel is as fast as the start when measured again."""
    lucky: list[str] = []

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        first = "parallel" in kernel.source and kernel.digest not in lucky
        lucky.append(kernel.digest)
        return verdict("correct", speedup=1.5 if first else 0.5)

    result = searches.run(tmp_path, searches.evaluator(judged), 8)
    duels = [row for row in rows(tmp_path) if row["event"] == "duel"]
    assert duels and all(row["decided"] != "second" for row in duels)
    assert result["speedup"] == 1.0 and not result["best"]["diff"]


def test_search_start_and_best_have_seeds_of_their_own(tmp_path: Path) -> None:
    judge = searches.evaluator()
    searches.run(tmp_path, judge, 3)
    drawn = [*judge.seeds[:2], judge.seeds[-1]]
    assert all(drawn) and len(set(drawn)) == 3


def test_search_seconds_end_it_with_a_verified_best(tmp_path: Path) -> None:
    ticks = itertools.count()
    budget = Budget(500, seconds=200)
    result = searches.run(tmp_path, searches.evaluator(), budget=budget, clock=lambda: next(ticks))
    assert result["stopped"] == "seconds" and 5 < result["evaluations"] < 100
    assert result["speedup"] > 5.0
    with pytest.raises(UsageError, match="seconds=2 is too little: judging the start took"):
        budget, folder = Budget(500, seconds=2), tmp_path / "b"
        searches.run(folder, searches.evaluator(), budget=budget, clock=lambda: next(ticks))
    assert not (folder / "kernels" / "matmul").exists()


def test_search_of_long_verdicts_and_short_rounds_is_not_refused(tmp_path: Path) -> None:
    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        return dataclasses.replace(searches.judged(problem, kernel), wall_s=30.0)

    given: Any = {"budget": Budget(6, seconds=250)}
    with pytest.raises(UsageError, match="seconds=250 is too little"):
        ticks = itertools.count()
        judge = searches.evaluator(judged)
        searches.run(tmp_path / "alone", judge, clock=lambda: next(ticks), **given)
    ticks = itertools.count()
    turns = searches.InTurns(judged, lambda problem, kernel: searches.timed(kernel))
    result = searches.run(tmp_path / "turns", turns, clock=lambda: next(ticks), **given)
    assert result["evaluations"] == 6 and result["speedup"] > 1.0


def test_search_same_seconds_keep_the_result(tmp_path: Path) -> None:
    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        return dataclasses.replace(searches.judged(problem, kernel), wall_s=10.0)

    def run(seconds: float, judge: ScriptedEvaluator, resume: bool = True) -> dict[str, Any]:
        ticks = itertools.count()
        budget = Budget(500, seconds=seconds)
        return searches.run(
            tmp_path, judge, budget=budget, clock=lambda: next(ticks), resume=resume
        )

    first = run(200, searches.evaluator(judged), resume=False)
    assert first["stopped"] == "seconds" and first["speedup"] > 1.0
    idle = searches.evaluator()
    assert run(200, idle) == first and not idle.judged
    more = run(300, searches.evaluator(judged))
    assert more["evaluations"] > first["evaluations"]
    assert run(300, idle) == more and not idle.judged


def test_search_judge_that_failed_is_asked_again(tmp_path: Path) -> None:
    asked: set[str] = set()

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        first = kernel.digest not in asked and kernel != searches.TASK.start
        asked.add(kernel.digest)
        return verdict("unavailable") if first else searches.judged(problem, kernel)

    result = searches.run(tmp_path, searches.evaluator(judged), 6)
    assert result["evaluations"] == 6 and "unavailable" not in result["failures"]


def test_search_approximate_best_is_shown_beside_exact(tmp_path: Path) -> None:
    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        fast = "-ffast-math" in kernel.source
        found = searches.speedup(kernel)
        return verdict("correct", speedup=found * (3.0 if fast else 1.0))

    judge = searches.evaluator(judged)
    result = searches.run(tmp_path, judge, 20, approximate=True)
    assert result["risk"] == "approximate"
    other = result["without_approximate"]
    assert 1.0 < other["speedup"] < result["speedup"]
    assert (
        "-ffast-math"
        not in (
            tmp_path / "kernels/matmul/variants" / other["state"] / "kernel_module.py"
        ).read_text()
    )


def test_search_small_space_is_exhausted(tmp_path: Path) -> None:
    from kernelgym_train.mcgs.proposing import RuleProposer

    rules = RuleProposer(read_variant(searches.TASK.start), moves=["unroll"])
    for algo in ALGORITHMS:
        result = searches.run(tmp_path / algo, searches.evaluator(), proposer=rules, algo=algo)
        assert (result["stopped"], result["evaluations"]) == ("space exhausted", 3)


def test_search_wrong_start_is_refused(tmp_path: Path) -> None:
    judge = searches.evaluator(lambda problem, kernel: verdict("wrong", message="off by one"))
    with pytest.raises(UsageError, match="the start kernel is wrong: off by one"):
        searches.run(tmp_path, judge)
    assert not (tmp_path / "kernels" / "matmul").exists()


def test_search_wrong_start_keeps_files_of_the_user(tmp_path: Path) -> None:
    judged = iter([verdict("correct", speedup=1.0), verdict("wrong")])
    judge = searches.evaluator(lambda problem, kernel: next(judged))
    folder = tmp_path / "kernels" / "matmul"
    (folder / "baseline").mkdir(parents=True)
    mine = (folder / "notes.md", folder / "baseline" / "mine.py")
    for path in mine:
        path.write_text("mine")
    with pytest.raises(UsageError, match="the start kernel is wrong"):
        searches.run(tmp_path, judge)
    assert {path for path in folder.rglob("*") if path.is_file()} == set(mine)


def test_search_folder_of_another_task_is_refused(tmp_path: Path) -> None:
    searches.run(tmp_path, searches.evaluator(), 2)
    with pytest.raises(UsageError, match="there is a search in"):
        searches.run(tmp_path, searches.evaluator(), 2)
    renamed = dataclasses.replace(searches.TASK, name="another")
    with pytest.raises(UsageError, match="holds the search of another kernel \\(matmul\\)"):
        search(renamed, searches.evaluator(), tmp_path)
    with pytest.raises(UsageError, match="begun with another approximate"):
        searches.run(tmp_path, searches.evaluator(), 2, approximate=True, resume=True)
    with pytest.raises(UsageError, match="there is no search in"):
        searches.run(tmp_path / "new", searches.evaluator(), 2, resume=True)


def test_optimize_is_the_search_of_the_command(tmp_path: Path) -> None:
    problem, start = searches.TASK.problem, searches.TASK.start
    result = optimize(
        problem, start, searches.evaluator(), tmp_path, SearchConfig(budget=Budget(3))
    )
    assert result["evaluations"] == 3 and result["problem"] == "example/matmul"


@pytest.mark.parametrize(
    ("evaluations", "workers"), [(1, 1), pytest.param(8, 2, marks=pytest.mark.slow)]
)
def test_search_on_the_judge_ends_with_a_correct_best(
    evaluations: int, workers: int, tmp_path: Path, cache_dir: Path
) -> None:
    """Real kernels, built, judged and timed; how much faster they are is the machine's."""
    problem, start = EXAMPLES["matmul"]
    small = dataclasses.replace(problem, source=problem.source.replace("512", "96"))
    assert small.source != problem.source
    with LocalEvaluator(workers=workers, cache_dir=cache_dir) as judge:
        given = SearchConfig(budget=Budget(evaluations))
        result = optimize(small, start, judge, tmp_path, given)
        best = Kernel((tmp_path / result["best"]["path"]).read_text(), "cpp")
        assert judge.evaluate(small, best).correct
    assert result["evaluations"] == evaluations
    assert set(result["failures"]) <= {"untimed"}, "a busy host leaves no time"
    assert best.digest == result["best"]["digest"]
    assert result["over_reference"]["speedup"] > 0.0 or result["host_busy"]
    assert (result["speedup_low"] > 1.0) == bool(result["best"]["diff"])
    events = [row["event"] for row in rows(tmp_path)]
    assert events[:3] == ["search", "start", "start"] and events[-1] == "finished"
