"""`LocalEvaluator` as its callers see it: order, threads, failures of ours, closing, tiers."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelgym.errors import UnknownName, UnsupportedLanguage, UsageError
from kernelgym.judge import LocalEvaluator, shared_evaluator
from kernelgym.judge.device.lock import DeviceLock
from kernelgym.judge.sandbox.paths import without
from kernelgym.judge.stage_clock import StageClock
from kernelgym.judge.untrusted.sandbox.sandbox import TIERS
from kernelgym.rulesets import RULESETS, Ruleset
from kernelgym.types import Evaluator, Job, Kernel, Status
from support import programs
from support.process_tree import children, descendants, is_alive, wait_gone, worker_of_mine
from support.programs import AFFINE, TIGHT, TRITON, doing, problem, replaced

WRONG = replaced(TRITON, "* 2 +", "* 3 +")


def test_it_is_an_evaluator(strict):
    assert isinstance(strict, Evaluator)


@pytest.mark.slow
def test_many_jobs_keep_their_places(cache_dir):
    kernels = [TRITON, WRONG, Kernel("import nonsense", "triton")] * 3
    with LocalEvaluator(cache_dir=cache_dir, workers=2, timing=False) as evaluator:
        verdicts = evaluator.evaluate_many([Job(AFFINE, kernel) for kernel in kernels])
        streamed = dict(evaluator.evaluate_iter(Job(AFFINE, kernel) for kernel in kernels))
    wanted = [Status.CORRECT, Status.WRONG, Status.COMPILE_ERROR] * 3
    assert [verdict.status for verdict in verdicts] == wanted
    assert [streamed[index].status for index in range(len(kernels))] == wanted


def test_threads_may_share_it(strict):
    found = {}

    def ask(index):
        found[index] = strict.evaluate(AFFINE, TRITON if index % 2 else WRONG).status

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: Status.CORRECT if i % 2 else Status.WRONG for i in range(8)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "1 / 0",
        pytest.param("def get_inputs(: pass", marks=pytest.mark.slow),
        pytest.param(
            AFFINE.source.replace("torch.relu(x)", "torch.rellu(x)"), marks=pytest.mark.slow
        ),
        pytest.param(AFFINE.source.replace("torch.randn(131)", "object()"), marks=pytest.mark.slow),
    ],
)
def test_a_broken_problem_is_unavailable_never_wrong(strict, source):
    broken = type(AFFINE)("Test/broken", "Test", 1, "broken", source)
    verdict = strict.evaluate(broken, TRITON)
    assert verdict.status is Status.UNAVAILABLE and not verdict.valid
    assert verdict.message and verdict.ruleset == strict.capabilities.ruleset.label
    assert strict.evaluate(AFFINE, TRITON).correct


@pytest.mark.slow
def test_a_problem_that_ends_its_process_is_unavailable(strict):
    suicide = problem("import os\nos._exit(0)", "torch.randn(3)", name="suicide")
    assert strict.evaluate(suicide, TRITON).status is Status.UNAVAILABLE
    assert strict.evaluate(AFFINE, TRITON).correct


@pytest.fixture(scope="module")
def mortal(tmp_path_factory):
    """An evaluator, its folder, and the processes that were there before it.

    Its tests end its workers and, in the last of them, itself; each replaced worker costs seconds.
    """
    before = descendants(os.getpid())
    folder = tmp_path_factory.mktemp("mortal")
    with LocalEvaluator(cache_dir=folder, timing=False) as evaluator:
        yield evaluator, folder, before


def test_a_lost_worker_is_replaced_and_the_job_tried_again(mortal):
    evaluator, _, before = mortal
    assert evaluator.evaluate(AFFINE, TRITON).correct
    worker = worker_of_mine(before)
    verdicts, slow = [], doing("import time; time.sleep(0.5)")
    job = threading.Thread(target=lambda: verdicts.append(evaluator.evaluate(AFFINE, slow)))
    job.start()
    time.sleep(0.3)
    os.kill(worker, signal.SIGKILL)
    job.join()
    assert verdicts[0].correct
    assert not is_alive(worker)


def test_an_interrupted_call_does_not_leave_its_answer_to_the_next(mortal):
    def interrupt(*_):
        raise KeyboardInterrupt

    evaluator, *_ = mortal
    assert evaluator.evaluate(AFFINE, TRITON).correct
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            evaluator.evaluate(AFFINE, doing("import time; time.sleep(2); 1 / 0"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert evaluator.evaluate(AFFINE, TRITON).correct


def _with_a_candidate_ahead(pid, before):
    """Return the processes below `pid`: worker, zygote and a candidate that is forked ahead."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        found = descendants(pid) - before
        if len(found) >= 3:
            return found
    raise AssertionError(f"no candidate was forked ahead: {found}")


def test_closing_leaves_no_process_and_no_file(mortal):
    evaluator, folder, before = mortal
    assert evaluator.evaluate(AFFINE, TRITON).correct
    ours = _with_a_candidate_ahead(os.getpid(), before)
    evaluator.close()
    evaluator.close()
    wait_gone(ours)
    assert list((folder / "scratch").iterdir()) == []
    verdict = evaluator.evaluate(AFFINE, TRITON)
    assert verdict.status is Status.UNAVAILABLE and "closed" in verdict.message


@pytest.mark.slow
def test_nothing_outlives_a_caller_that_is_killed(tmp_path):
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from support.programs import AFFINE, TRITON\n"
        "from kernelgym.judge import LocalEvaluator\n"
        "evaluator = LocalEvaluator(cache_dir=sys.argv[2], timing=False)\n"
        "print(evaluator.evaluate(AFFINE, TRITON).status.value, flush=True)\n"
        "import time; time.sleep(999)\n"
    )
    here = str(Path(programs.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", program, here, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as caller:
        assert caller.stdout.readline().strip() == "correct"
        try:
            ours = _with_a_candidate_ahead(caller.pid, set())
        finally:
            caller.kill()
    wait_gone(ours)
    assert [path for path in (tmp_path / "scratch").iterdir() if path.is_dir()]
    with LocalEvaluator(cache_dir=tmp_path, timing=False) as evaluator:
        assert evaluator.evaluate(AFFINE, TRITON).correct
        assert len([p for p in (tmp_path / "scratch").iterdir() if p.is_dir()]) == 1
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_caller_imports_no_torch():
    program = (
        "import sys, kernelgym.judge\n"
        "kernelgym.judge.LocalEvaluator().close()\n"
        "print(sorted({'torch', 'triton', 'datasets', 'faiss'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout.strip() == "[]", answer.stderr


def test_arguments_are_checked():
    with pytest.raises(UsageError, match=r"cuda:99.*does not exist|no CUDA device can be used"):
        LocalEvaluator(device="cuda:99")
    with pytest.raises(UsageError, match="'abacus' cannot be judged on"):
        LocalEvaluator(device="abacus")
    with pytest.raises(UnknownName, match="strikt"):
        LocalEvaluator(ruleset="strikt")
    with pytest.raises(UsageError, match="workers"):
        LocalEvaluator(workers=0)
    with pytest.raises(UsageError, match="tier"):
        LocalEvaluator(isolation="perfect")


def test_languages_of_other_devices_are_refused(strict):
    for language in ("cuda", "hip", "torch"):
        with pytest.raises((UnsupportedLanguage, UnknownName)):
            strict.evaluate(AFFINE, Kernel("", language))


def test_shared_evaluators_count_their_users():
    rules = Ruleset("test-only")
    first, second = shared_evaluator(ruleset=rules), shared_evaluator(ruleset=rules)
    other = shared_evaluator(ruleset=RULESETS["kernelbench"])
    assert first is second and other is not first
    first.close()
    assert shared_evaluator(ruleset=rules) is second
    second.close()
    second.close()
    assert shared_evaluator(ruleset=rules) is not second
    shared_evaluator(ruleset=rules).close()
    other.close()


@pytest.mark.slow
def test_a_worker_keeps_nothing_of_the_kernels_it_judged(tmp_path):
    before = descendants(os.getpid())
    with LocalEvaluator(cache_dir=tmp_path, timing=False) as evaluator:
        for _ in range(3):
            assert evaluator.evaluate(AFFINE, TRITON).correct
        worker = worker_of_mine(before)
        open_files = len(os.listdir(f"/proc/{worker}/fd"))
        (scratch,) = (path for path in (tmp_path / "scratch").iterdir() if path.is_dir())
        folders = len(list(scratch.iterdir()))  # those of processes on standby
        for kernel in [TRITON, WRONG, doing("1 / 0"), doing("import os; os._exit(0)")] * 4:
            evaluator.evaluate(AFFINE, kernel)
        assert len(os.listdir(f"/proc/{worker}/fd")) == open_files
        assert len(list(scratch.iterdir())) <= folders


@pytest.mark.slow
def test_a_forked_child_has_workers_of_its_own(cache_dir):
    with LocalEvaluator(cache_dir=cache_dir, timing=False) as evaluator:
        assert evaluator.evaluate(AFFINE, TRITON).correct
        child = os.fork()
        if child == 0:
            try:
                found = {evaluator.evaluate(AFFINE, WRONG).status for _ in range(3)}
                evaluator.close()
                os._exit(0 if found == {Status.WRONG} else 1)
            finally:
                os._exit(2)
        found = {evaluator.evaluate(AFFINE, TRITON).status for _ in range(30)}
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert found == {Status.CORRECT}
        assert evaluator.evaluate(AFFINE, TRITON).correct


def _standing_by(worker):
    """Return who waits below the zygote of `worker`, once nobody there comes or goes."""
    deadline, found = time.monotonic() + 30.0, None
    while time.monotonic() < deadline:
        zygotes = children({worker})
        now = children(zygotes)
        if now and now == found:
            return now
        found = now
        time.sleep(0.2)
    raise AssertionError(f"no candidate stands by: {found}")


@pytest.mark.slow
def test_a_standby_that_was_killed_is_nobodys_fault(cache_dir):
    before = descendants(os.getpid())
    with LocalEvaluator(cache_dir=cache_dir, timing=False) as evaluator:
        assert evaluator.evaluate(AFFINE, TRITON).correct
        killed = _standing_by(worker_of_mine(before))
        for standby in killed:
            os.kill(standby, signal.SIGKILL)
        wait_gone(killed)
        assert evaluator.evaluate(AFFINE, TRITON).correct


def test_whoever_wants_the_lease_alone_gets_it_under_a_stream_of_sharers(tmp_path):
    device_lock, stop = DeviceLock(tmp_path / "lock", StageClock()), threading.Event()

    def share():
        device_lock = DeviceLock(tmp_path / "lock", StageClock())
        while not stop.is_set():
            with device_lock.shared():
                time.sleep(0.01)

    threads = [threading.Thread(target=share) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            with device_lock.exclusive():
                pass
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_package_is_left_out_of_what_may_be_read(tmp_path):
    for name in ("lib/site/torch", "lib/site/kernelgym/judge", "bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")  # as in a virtual environment
    parts = without(str(tmp_path), tmp_path / "lib/site/kernelgym")
    assert sorted(parts) == [str(tmp_path / "bin"), str(tmp_path / "lib/site/torch")]
    assert without(str(tmp_path / "bin"), tmp_path / "lib") == [str(tmp_path / "bin")]


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_judges_and_says_which_it_was(tier, tmp_path):
    rules = Ruleset("strict", limits=TIGHT)
    with LocalEvaluator(ruleset=rules, cache_dir=tmp_path, timing=False, isolation=tier) as it:
        verdict = it.evaluate(AFFINE, TRITON)
        assert verdict.correct and verdict.isolation == tier
        assert it.evaluate(AFFINE, doing("while True: pass")).status is Status.TIMEOUT
        leaver = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(999)"
        before = descendants(os.getpid())
        it.evaluate(AFFINE, doing(leaver))
        # One standby may have been forked meanwhile; a runaway child would be one more.
        deadline = time.monotonic() + 20
        while len(descendants(os.getpid()) - before) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert it.evaluate(AFFINE, TRITON).correct
