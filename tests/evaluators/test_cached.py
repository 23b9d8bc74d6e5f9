"""`CachedEvaluator`: a verdict is judged once, whoever asks; some are never kept."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.capabilities import DeviceHealth
from kernelgym.errors import UsageError
from kernelgym.evaluators.cache_store import VerdictStore
from kernelgym.evaluators.cached import CachedEvaluator
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Evaluator, Finding, Job, Kernel, Problem, Status, Verdict
from support.strategies import verdicts

KEPT = [s for s in Status if s not in (Status.UNAVAILABLE, Status.TIMEOUT)]


def kernel(number: int, status: str = "correct") -> Kernel:
    return Kernel(f"# kernel {number}\n# verdict: {status}\n", "triton")


def cached(inner: Evaluator, folder: Path, **more: object) -> CachedEvaluator:
    return CachedEvaluator(inner, folder, **more)  # type: ignore[arg-type]


def same(a: Verdict, b: Verdict) -> bool:
    return dataclasses.replace(a, wall_s=0.0) == dataclasses.replace(b, wall_s=0.0)


class Slow(ScriptedEvaluator):
    """Judges once it is let."""

    def __init__(self, script: object = None) -> None:
        super().__init__(script)  # type: ignore[arg-type]
        self.begun, self.let = threading.Semaphore(0), threading.Event()

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        self.begun.release()
        assert self.let.wait(30)
        return super().evaluate(problem, kernel, seed=seed)


# --------------------------------------------------------------------------- what is kept


def test_health_is_that_of_the_evaluator(tmp_path: Path) -> None:
    inner = ScriptedEvaluator()
    assert cached(inner, tmp_path).status.health == ()
    inner.health = (DeviceHealth("cuda:0", False, lost=3),)
    assert cached(inner, tmp_path).status.health[0].lost == 3


@given(verdicts(tuple(KEPT)))
def test_a_kept_verdict_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, found: Verdict
) -> None:
    folder = tmp_path_factory.mktemp("verdicts")
    inner = ScriptedEvaluator([found])
    first = cached(inner, folder).evaluate(SAMPLE_PROBLEM, kernel(1))
    again = cached(inner, folder).evaluate(SAMPLE_PROBLEM, kernel(1))
    assert same(first, again) and len(inner.judged) == 1


@pytest.mark.parametrize("status", [Status.UNAVAILABLE, Status.TIMEOUT])
def test_what_says_nothing_for_sure_is_judged_again(tmp_path: Path, status: Status) -> None:
    inner = ScriptedEvaluator([verdict(status), verdict("correct")])
    judge = cached(inner, tmp_path)
    assert judge.evaluate(SAMPLE_PROBLEM, kernel(1)).status is status
    assert judge.evaluate(SAMPLE_PROBLEM, kernel(1)).correct
    assert judge.evaluate(SAMPLE_PROBLEM, kernel(1)).correct
    assert len(inner.judged) == 2 and (judge.status.hits, judge.status.misses) == (1, 2)


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (verdict("compile_error", log="error: expected ';'"), True),
        (verdict("compile_error", log="the build took longer than 120 s"), False),
        (verdict("compile_error", log="cc1plus: out of memory"), False),
        (verdict("correct", speedup=2.0), True),
        (verdict("correct"), False),  # it is one that could have been timed
        (verdict("correct", speedup=2.0, findings=(Finding("host_busy", "load"),)), False),
        (verdict("wrong"), True),
    ],
)
def test_what_the_machines_load_decided_is_judged_again(
    tmp_path: Path, found: Verdict, kept: bool
) -> None:
    inner = ScriptedEvaluator([found])
    for _ in range(2):
        cached(inner, tmp_path).evaluate(SAMPLE_PROBLEM, Kernel("class ModelNew: ...", "cpp"))
    assert len(inner.judged) == (1 if kept else 2)


def test_everything_that_decides_a_verdict_is_part_of_its_key(tmp_path: Path) -> None:
    other_rules = dataclasses.replace(RULESETS["strict"], atol=1e-3)
    problem, one = SAMPLE_PROBLEM, kernel(1)
    renamed = dataclasses.replace(problem, id="Else/1", name="else")
    keys = [
        cached(ScriptedEvaluator(), tmp_path).key(Job(problem, one)),
        cached(ScriptedEvaluator(), tmp_path).key(
            Job(dataclasses.replace(problem, source=problem.source + "\n"), one)
        ),
        cached(ScriptedEvaluator(), tmp_path).key(Job(problem, Kernel(one.source + " ", "triton"))),
        cached(ScriptedEvaluator(), tmp_path).key(Job(problem, Kernel(one.source, "cpp"))),
        cached(ScriptedEvaluator(ruleset="kernelbench"), tmp_path).key(Job(problem, one)),
        cached(ScriptedEvaluator(ruleset=other_rules), tmp_path).key(Job(problem, one)),
        cached(ScriptedEvaluator(provenance=("another",)), tmp_path).key(Job(problem, one)),
        cached(ScriptedEvaluator(isolation="namespaces"), tmp_path).key(Job(problem, one)),
        cached(ScriptedEvaluator(timed=False), tmp_path).key(Job(problem, one)),
    ]
    assert len(set(keys)) == len(keys)
    assert cached(ScriptedEvaluator(), tmp_path).key(Job(renamed, one)) == keys[0]


@given(st.lists(st.text(st.characters(), max_size=5), min_size=3, max_size=3))
def test_no_two_ways_to_cut_a_text_share_a_key(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    judge = cached(ScriptedEvaluator(), tmp_path_factory.getbasetemp() / "keys")
    a, b, c = parts
    problems = [dataclasses.replace(SAMPLE_PROBLEM, source=text) for text in (a, a + b)]
    keys = judge.key(Job(problems[0], Kernel(c, b))), judge.key(Job(problems[1], Kernel(c, "")))
    assert (keys[0] == keys[1]) == (b == "")


def test_the_index_of_a_device_does_not_count(tmp_path: Path) -> None:
    inner = ScriptedEvaluator(device="cuda:1")
    wrong = kernel(1, "wrong")
    cached(ScriptedEvaluator(device="cuda:0"), tmp_path).evaluate(SAMPLE_PROBLEM, wrong)
    found = cached(inner, tmp_path).evaluate(SAMPLE_PROBLEM, wrong)
    assert found.device == "cuda:1" and not inner.judged


def test_a_seeded_kernel_is_neither_looked_up_nor_kept(tmp_path: Path) -> None:
    inner = ScriptedEvaluator()
    judge = cached(inner, tmp_path)
    judge.evaluate(SAMPLE_PROBLEM, kernel(1))
    for asked in (1, 1, 2):
        assert judge.evaluate(SAMPLE_PROBLEM, kernel(asked), seed="ab").seed == "ab"
    assert judge.evaluate(SAMPLE_PROBLEM, kernel(1)).seed == ""
    assert judge.evaluate(SAMPLE_PROBLEM, kernel(2)).seed == ""
    assert inner.seeds == ["", "ab", "ab", "ab", ""]


# --------------------------------------------------------------------------- many at once


def test_a_batch_judges_each_kernel_once(tmp_path: Path) -> None:
    cached(ScriptedEvaluator(), tmp_path).evaluate(SAMPLE_PROBLEM, kernel(0))
    inner = ScriptedEvaluator()
    numbers = [1, 1, 0, 2, 0, 1]
    jobs = (Job(SAMPLE_PROBLEM, kernel(number)) for number in numbers)
    done = dict(cached(inner, tmp_path).evaluate_iter(jobs))
    assert sorted(done) == list(range(len(numbers)))
    assert [job.kernel for job in inner.judged] == [kernel(1), kernel(2)]


def test_a_kept_verdict_does_not_wait_for_one_that_is_being_judged(tmp_path: Path) -> None:
    cached(ScriptedEvaluator(), tmp_path).evaluate(SAMPLE_PROBLEM, kernel(0))
    inner = Slow()
    stream = cached(inner, tmp_path).evaluate_iter(
        [Job(SAMPLE_PROBLEM, kernel(number)) for number in (5, 0)]
    )
    assert next(stream)[0] == 1
    inner.let.set()
    assert next(stream)[0] == 0
    assert next(stream, None) is None


@pytest.mark.parametrize(("status", "calls"), [("timeout", 1), ("unavailable", 16)])
def test_a_batch_of_one_kernel_waits_for_one_verdict(
    tmp_path: Path, status: str, calls: int
) -> None:
    inner = Slow([verdict(status)])
    threading.Timer(1.0, inner.let.set).start()  # once all of them wait, on a busy host, too
    found = cached(inner, tmp_path).evaluate_many([Job(SAMPLE_PROBLEM, kernel(1))] * 16)
    assert [each.status for each in found] == [Status(status)] * 16
    assert len(inner.judged) == calls


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=30),
    st.lists(st.sampled_from(list(Status)), min_size=6, max_size=6),
)
def test_a_batch_gives_every_job_its_own_verdict(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], statuses: list[Status]
) -> None:
    folder = tmp_path_factory.mktemp("verdicts")
    inner = ScriptedEvaluator()
    kernels = [kernel(number, status.value) for number, status in enumerate(statuses)]
    jobs = [Job(SAMPLE_PROBLEM, kernels[number]) for number in numbers]
    for _ in range(2):
        found = cached(inner, folder).evaluate_many(jobs)
        assert [each.status for each in found] == [statuses[number] for number in numbers]
    for number in set(numbers):
        count = sum(job.kernel == kernels[number] for job in inner.judged)
        asked = 2 * numbers.count(number)
        if statuses[number] is Status.UNAVAILABLE:
            assert count == asked
        elif statuses[number] is Status.TIMEOUT:  # shared with those in flight only
            assert 2 <= count <= asked
        else:
            assert count == 1


def test_jobs_are_not_taken_far_ahead_of_the_verdicts(tmp_path: Path) -> None:
    taken = []

    def jobs() -> Iterator[Job]:
        for number in range(100_000):
            taken.append(number)
            yield Job(SAMPLE_PROBLEM, kernel(0))

    stream = cached(ScriptedEvaluator(), tmp_path).evaluate_iter(jobs())
    for _ in range(10):
        next(stream)
    stream.close()  # type: ignore[attr-defined]
    time.sleep(0.3)
    seen = len(taken)
    assert seen < 1000
    time.sleep(0.2)
    assert len(taken) == seen


def test_error_of_the_evaluator_is_raised_each_time(tmp_path: Path) -> None:
    def refuse(problem: Problem, kernel: Kernel) -> Verdict:
        raise UsageError("not here")

    refusing = cached(ScriptedEvaluator(refuse), tmp_path)
    job = Job(SAMPLE_PROBLEM, kernel(1))
    with pytest.raises(UsageError, match="not here"):
        refusing.evaluate(job.problem, job.kernel)
    with pytest.raises(UsageError, match="not here"):
        refusing.evaluate_many([job, job])
    assert cached(ScriptedEvaluator(), tmp_path).evaluate_many([job])[0].correct


def test_threads_that_ask_for_one_verdict_wait_for_the_first(tmp_path: Path) -> None:
    inner = Slow()
    judge = cached(inner, tmp_path)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(judge.evaluate, SAMPLE_PROBLEM, kernel(1)) for _ in range(8)]
        assert inner.begun.acquire(timeout=30)
        inner.let.set()
        assert all(each.result(30).correct for each in asked)
    assert len(inner.judged) == 1 and (judge.status.hits, judge.status.misses) == (7, 1)


def test_those_who_waited_share_a_timeout_and_nobody_else_does(tmp_path: Path) -> None:
    inner = Slow([verdict("timeout")])
    judge = cached(inner, tmp_path)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(judge.evaluate, SAMPLE_PROBLEM, kernel(1))
        assert inner.begun.acquire(timeout=30)
        others = [pool.submit(judge.evaluate, SAMPLE_PROBLEM, kernel(1)) for _ in range(3)]
        time.sleep(0.3)  # so that they are waiting; if one came late it would judge itself
        inner.let.set()
        found = [each.result(30) for each in [first, *others]]
    assert all(each.status is Status.TIMEOUT for each in found)
    assert len(inner.judged) < 4
    before = len(inner.judged)
    judge.evaluate(SAMPLE_PROBLEM, kernel(1))
    assert len(inner.judged) == before + 1


def test_batches_at_the_same_time_judge_each_kernel_once(tmp_path: Path) -> None:
    inner = Slow()
    judge = cached(inner, tmp_path)
    jobs = [Job(SAMPLE_PROBLEM, kernel(number)) for number in (1, 2, 1, 3)]
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(judge.evaluate_many, jobs[start:] * 2) for start in range(4)]
        time.sleep(0.2)  # so that most wait; a late one finds what is kept
        inner.let.set()
        assert all(each.correct for batch in asked for each in batch.result(30))
    assert len(inner.judged) == 3 and (judge.status.hits, judge.status.misses) == (17, 3)


def test_a_batch_judges_what_a_closed_batch_left(tmp_path: Path) -> None:
    inner = Slow()
    judge = cached(inner, tmp_path)
    jobs = [Job(SAMPLE_PROBLEM, kernel(number)) for number in (0, 1)]
    cached(ScriptedEvaluator(), tmp_path).evaluate(SAMPLE_PROBLEM, kernel(0))
    first = judge.evaluate_iter(jobs)
    assert next(first)[0] == 0
    second = judge.evaluate_iter(jobs * 2)
    assert sorted(next(second)[0] for _ in range(2)) == [0, 2]
    first.close()  # type: ignore[attr-defined]
    inner.let.set()
    assert sorted(index for index, _ in second) == [1, 3]
    assert len(inner.judged) <= 2


def test_a_forked_child_does_not_wait_for_its_parent(tmp_path: Path) -> None:
    inner = Slow()
    judge = cached(inner, tmp_path)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(judge.evaluate, SAMPLE_PROBLEM, kernel(1))
        assert inner.begun.acquire(timeout=30)
        child = os.fork()
        if child == 0:
            inner.let.set()
            os._exit(0 if judge.evaluate(SAMPLE_PROBLEM, kernel(1)).correct else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        inner.let.set()
        assert asked.result(30).correct


# --------------------------------------------------------------------------- many processes

PROGRAM = textwrap.dedent(
    """
    import sys, time
    from kernelgym.evaluators.cached import CachedEvaluator
    from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator, verdict
    from kernelgym.types import Job, Kernel

    folder, mode = sys.argv[1:]

    def script(problem, kernel):
        time.sleep(0.05)
        return verdict("wrong", message=kernel.source)

    judge = CachedEvaluator(ScriptedEvaluator(script), folder)
    kernels = [Kernel(f"# {number}", "triton") for number in range(6)]
    print("ready", flush=True)
    sys.stdin.readline()
    if mode == "one":
        for kernel in kernels:
            assert judge.evaluate(SAMPLE_PROBLEM, kernel).message == kernel.source
    else:
        jobs = [Job(SAMPLE_PROBLEM, kernel) for kernel in kernels * 2]
        found = judge.evaluate_many(jobs)
        assert [each.message for each in found] == [job.kernel.source for job in jobs]
    """
)


def test_processes_can_share_a_folder(tmp_path: Path) -> None:
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for mode in ("one", "many", "one", "many")
    ]
    for process in racing:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in racing:
        process.communicate("go\n", timeout=60)
    assert [process.returncode for process in racing] == [0] * 4
    judge = cached(ScriptedEvaluator(), tmp_path)
    for number in range(6):
        kept = judge.evaluate(SAMPLE_PROBLEM, Kernel(f"# {number}", "triton"))
        assert kept.message == f"# {number}"
    assert (judge.status.hits, judge.status.misses) == (6, 0)


# --------------------------------------------------------------------------- the folder


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("??/*.json"))


@pytest.mark.parametrize("damage", ["", "{", "null", "[1]\n[]", '{"key": 1}\n{}', "\x00" * 64])
def test_a_damaged_entry_is_ignored_and_replaced(tmp_path: Path, damage: str) -> None:
    inner = ScriptedEvaluator()
    judge = cached(inner, tmp_path)
    judge.evaluate(SAMPLE_PROBLEM, kernel(1))
    (entry,) = entries(tmp_path)
    entry.write_text(damage)
    assert judge.evaluate(SAMPLE_PROBLEM, kernel(1)).correct
    assert judge.evaluate(SAMPLE_PROBLEM, kernel(1)).correct
    assert len(inner.judged) == 2


@given(st.data())
def test_no_flipped_byte_passes_for_a_verdict(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("verdicts")
    inner = ScriptedEvaluator([verdict("wrong", log="a log")])
    first = cached(inner, folder).evaluate(SAMPLE_PROBLEM, kernel(1))
    (entry,) = entries(folder)
    content = bytearray(entry.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    entry.write_bytes(content)
    assert same(cached(inner, folder).evaluate(SAMPLE_PROBLEM, kernel(1)), first)


def test_an_entry_under_another_name_is_not_believed(tmp_path: Path) -> None:
    judge = cached(ScriptedEvaluator(), tmp_path)
    judge.evaluate(SAMPLE_PROBLEM, kernel(1, "wrong"))
    (entry,) = entries(tmp_path)
    other = judge.key(Job(SAMPLE_PROBLEM, kernel(2)))
    (tmp_path / other[:2]).mkdir(exist_ok=True)
    entry.rename(tmp_path / other[:2] / f"{other[2:]}.json")
    assert judge.evaluate(SAMPLE_PROBLEM, kernel(2)).correct


def test_the_folder_stays_under_its_limit_and_keeps_what_is_used(tmp_path: Path) -> None:
    limit = 40_000
    judge = cached(
        ScriptedEvaluator([verdict("wrong", log="x" * 1000)]), tmp_path, limit_bytes=limit
    )
    for number in range(100):
        judge.evaluate(SAMPLE_PROBLEM, kernel(number))
        judge.evaluate(SAMPLE_PROBLEM, kernel(0))
        for entry in entries(tmp_path):  # so that none is as old as another, however coarse
            stamp = entry.stat().st_mtime - 10
            os.utime(entry, (stamp, stamp))
    total = sum(entry.stat().st_size for entry in entries(tmp_path))
    assert 0.3 * limit < total <= limit * 1.1
    assert judge.status.misses == 100  # the one that was used all along never went


def test_entries_lie_two_levels_deep_and_alone(tmp_path: Path) -> None:
    judge = cached(ScriptedEvaluator(), tmp_path)
    judge.evaluate_many([Job(SAMPLE_PROBLEM, kernel(number)) for number in range(20)])
    assert len(entries(tmp_path)) == 20
    others = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert [path.name for path in others] == [".lock"]
    assert all(
        json.loads(entry.read_text().split("\n")[1])["correct"] for entry in entries(tmp_path)
    )


def test_file_that_a_killed_process_began_is_removed(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path, 1 << 20)
    (tmp_path / "ab").mkdir()
    for name in ("1.tmp", "2.tmp"):
        (tmp_path / "ab" / name).touch()
    os.utime(tmp_path / "ab" / "1.tmp", (1.0, 1.0))
    store.cut_back()
    assert [path.name for path in (tmp_path / "ab").iterdir()] == ["2.tmp"]


# --------------------------------------------------------------------------- the evaluator itself


def test_it_is_an_evaluator_and_closes_only_what_it_owns(tmp_path: Path) -> None:
    for owns in (False, True):
        inner = ScriptedEvaluator()
        with cached(inner, tmp_path, owns=owns) as judge:
            assert isinstance(judge, Evaluator)
            assert judge.capabilities == inner.capabilities
        assert inner.closed == owns


def test_folders_and_limits_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="limit_bytes"):
        cached(ScriptedEvaluator(), tmp_path, limit_bytes=0)
    with pytest.raises(UsageError, match="cannot be kept"):
        cached(ScriptedEvaluator(), Path("/dev/null/verdicts"))
