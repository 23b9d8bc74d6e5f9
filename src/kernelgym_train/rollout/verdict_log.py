"""`VerdictLog`: an evaluator whose verdicts are written down before anybody uses them.

Contract: a verdict is kept under problem, kernel, ruleset and device, appended to a file before it
is given, and given again whenever the same is asked, also after a kill: so what was rewarded once
is rewarded the same when a step is played again, timed or not. Unlike the other files of a run
this one is never cut back. A kernel asked for twice at the same time is judged once. An
`unavailable` verdict says nothing about the kernel and is not kept.

Inputs follow from the run's secret, so that two runs with one secret draw the same ones; a kernel
that is told its own seed learns no other's. A kernel asked for with a seed is judged now, and its
verdict is not kept.

It never closes the evaluator it was given.
"""

from __future__ import annotations

import hashlib
import hmac
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from kernelgym.errors import JudgeError
from kernelgym.records.jsonlines import append_line, read_lines
from kernelgym.rulesets import Ruleset
from kernelgym.types import Evaluator, Job, Kernel, Problem, Verdict

__all__ = ["VerdictLog"]

_Key = tuple[str, str, str, str]
_Todo = tuple[Job, "Future[Verdict]"]


class VerdictLog:
    """Keeps another evaluator's verdicts in a file of JSON lines.

    Args:
        evaluator: Judges what is not kept.
        path: The file; made when the first verdict is kept.
        secret: What inputs follow from; empty to leave them to the evaluator.
    """

    def __init__(self, evaluator: Evaluator, path: str | Path, *, secret: str = "") -> None:
        self._inner, self._path, self._secret = evaluator, Path(path), secret
        self._lock = threading.Lock()
        self._known: dict[_Key, Verdict] = {}
        self._judging: dict[_Key, Future[Verdict]] = {}
        self.hits = 0
        """Verdicts given without having them judged."""
        self.misses = 0
        """Verdicts that were judged."""
        if self._path.exists():
            for _, row in read_lines(self._path):
                key = (row["problem"], row["kernel"], row["ruleset"], row["device"])
                self._known[key] = Verdict.from_dict(row["verdict"])

    @property
    def device(self) -> str:
        """The device kernels run on."""
        return self._inner.device

    @property
    def ruleset(self) -> Ruleset:
        """The rules of its verdicts."""
        return self._inner.ruleset

    @property
    def timing(self) -> bool:
        """Whether the evaluator says that it times correct kernels."""
        return bool(getattr(self._inner, "timing", True))

    @property
    def health(self) -> tuple[Any, ...]:
        """The `DeviceHealth` of the evaluator's devices, if it has them."""
        return tuple(getattr(self._inner, "health", ()))

    def __len__(self) -> int:
        return len(self._known)

    def evaluate(self, problem: Problem, kernel: Kernel, *, seed: str = "") -> Verdict:
        """Return the kept verdict, or judge; keep it unless seeded."""
        if seed:
            return self._inner.evaluate(problem, kernel, seed=seed)
        return next(iter(self.evaluate_iter([Job(problem, kernel)])))[1]

    def evaluate_iter(self, jobs: Iterable[Job]) -> Iterator[tuple[int, Verdict]]:
        """Judge many; yields what is kept at once and the others as they come.

        An error that the evaluator raises is raised for the kernels it was raised for.
        """
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        futures: list[Future[Verdict]] = []
        todo: list[_Todo] = []
        for index, job in enumerate(jobs):
            future, mine = self._ask(job)
            futures.append(future)
            todo += [(job, future)] * mine
            future.add_done_callback(_putting(done, index))
        self._start(todo)
        for _ in futures:
            index = done.get()
            yield index, futures[index].result()

    def evaluate_many(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Judge many; verdicts in the order of the jobs."""
        verdicts = dict(self.evaluate_iter(jobs))
        return [verdicts[index] for index in range(len(jobs))]

    def close(self) -> None:
        """Do nothing: the evaluator is its maker's, and the file is closed after every line."""

    def _ask(self, job: Job) -> tuple[Future[Verdict], bool]:
        """Return a job's verdict to come, and whether it is the caller's to bring about."""
        key = self._key(job)
        with self._lock:
            if key in self._known:
                self.hits += 1
                ready: Future[Verdict] = Future()
                ready.set_result(self._known[key])
                return ready, False
            if key in self._judging:
                self.hits += 1
                return self._judging[key], False
            self.misses += 1
            self._judging[key] = Future()
            return self._judging[key], True

    def _start(self, todo: list[_Todo]) -> None:
        """Have jobs judged in threads of their own; each future is settled, whatever happens."""
        if not todo:
            return
        work: Callable[[], None]
        if self._secret:
            waiting: queue.SimpleQueue[_Todo] = queue.SimpleQueue()
            for each in todo:
                waiting.put(each)

            def work() -> None:
                while True:
                    try:
                        job, future = waiting.get_nowait()
                    except queue.Empty:
                        return
                    self._settle(job, future, lambda job=job: self._judge(job))  # type: ignore[misc]

            devices = len(getattr(self._inner, "devices", ())) or 1
            count = min(len(todo), max(1, getattr(self._inner, "workers", 1)) * devices)
        else:
            count = 1

            def work() -> None:
                self._judge_together(todo)

        for _ in range(count):
            threading.Thread(target=work, name="kernelgym-verdicts", daemon=True).start()

    def _judge(self, job: Job) -> Verdict:
        text = f"{job.problem.id}\0{job.problem.digest}\0{job.kernel.digest}"
        seed = hmac.new(self._secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]
        return self._inner.evaluate(job.problem, job.kernel, seed=seed)

    def _judge_together(self, todo: Sequence[_Todo]) -> None:
        failure: BaseException = JudgeError("the evaluator gave no verdict")
        try:
            for index, verdict in self._inner.evaluate_iter([job for job, _ in todo]):
                self._settle(*todo[index], lambda verdict=verdict: verdict)  # type: ignore[misc]
        except BaseException as error:
            failure = error

        def fail() -> Verdict:
            raise failure

        for job, future in todo:
            if not future.done():
                self._settle(job, future, fail)

    def _settle(self, job: Job, future: Future[Verdict], judge: Callable[[], Verdict]) -> None:
        key = self._key(job)
        try:
            verdict = judge()
            if verdict.valid:
                names = ("problem", "kernel", "ruleset", "device")
                row = dict(zip(names, key, strict=True)) | {"verdict": verdict.to_dict()}
                append_line(self._path, row)
        except BaseException as error:
            with self._lock:
                self._judging.pop(key, None)
            # A StopIteration would end whoever waits for it without a word.
            wrapped = JudgeError(f"the evaluator raised {error!r}")
            future.set_exception(wrapped if isinstance(error, StopIteration) else error)
            return
        with self._lock:
            if verdict.valid:
                self._known[key] = verdict
            self._judging.pop(key, None)
        future.set_result(verdict)

    def _key(self, job: Job) -> _Key:
        problem = f"{job.problem.id}@{job.problem.digest}"
        return problem, job.kernel.digest, self.ruleset.label, self.device


def _putting(done: queue.SimpleQueue[int], index: int) -> Callable[[Future[Verdict]], None]:
    return lambda _: done.put(index)
