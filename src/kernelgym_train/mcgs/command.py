"""``kernelgym-train --backend mcgs``: a search from the command line."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgym import LocalEvaluator, RemoteEvaluator, UsageError
from kernelgym.paths import cache_folder
from kernelgym.reading import options
from kernelgym.records.run_logs import run_logs, tell
from kernelgym.rulesets import Ruleset
from kernelgym.types import Evaluator
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.cpp.extension import file_of
from kernelgym_train.mcgs.cpp.loops import unread_loops
from kernelgym_train.mcgs.device_checks import check_devices
from kernelgym_train.mcgs.files import SearchFolder
from kernelgym_train.mcgs.finishing import sentence
from kernelgym_train.mcgs.folders import read_tasks, search_folder, whole_sentence
from kernelgym_train.mcgs.live import live_table
from kernelgym_train.mcgs.search import search
from kernelgym_train.mcgs.session import rules_for
from kernelgym_train.mcgs.settings import SearchSettings, read_search_settings
from kernelgym_train.mcgs.sharing import first_shares
from kernelgym_train.mcgs.source_forms import builds_extension, holds_cpp
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.tactics import NAME, read_tactics
from kernelgym_train.mcgs.task import SearchTask, read_task
from kernelgym_train.mcgs.variant import read_variant
from kernelgym_train.mcgs.worker import read_control, repeat
from kernelgym_train.mcgs.writing.making import check_writer, make_writer
from kernelgym_train.mcgs.writing.writer import KernelWriter

_LEAST, _MOST = (2.8, 0.35, 40), (4.1, 6.0, 100)
"""Lower and upper bounds of (seconds of a build, seconds of a verdict without its build, number of
verdicts of the comparisons) for C++ kernels, measured on a quiet machine with two cores."""
_LEAST_GPU, _MOST_GPU = (0.1, 0.5, 40), (1.0, 1.5, 100)
"""Lower and upper bounds of the same figures for Triton kernels, as measured on an H100."""
_LEAST_CUDA, _MOST_CUDA = (8.0, 0.5, 40), (35.0, 1.5, 100)
"""Lower and upper bounds of the same figures for CUDA kernels; nvcc's builds take longest with all
of torch's headers."""

_PASSED_ON = (
    *("budget", "algo", "approximate", "seed", "workers", "deterministic", "root_noise"),
    *("ncu_every", "require_quiet", "moves"),
)
"""Names of the settings of the command that are passed on to a search unchanged."""


def help_settings() -> None:
    """Print every key that the search command accepts, with its help."""
    for key in options(SearchSettings):
        print(f"{key.path} = {key.default!r}\n    {key.help} ({key.type})")


def run_search(given: Sequence[str], *, dry_run: bool = False) -> int:
    """Search, print the result in one sentence, and return the exit code.

    The exit code is 1 if the search of a kernel in a folder failed, and 0 otherwise.

    Args:
        given: Texts such as ``budget_builds=20``.
        dry_run: Whether to print the settings and the moves of the start, and judge nothing.

    Raises:
        UsageError: If a setting is wrong.
        KeyboardInterrupt: If Ctrl-C ended the search in order, after the result is printed.
    """
    settings = read_search_settings(given)
    if settings.worker:
        return _repeat(settings)
    if dry_run:
        read_tactics(_tactics(settings))  # a search refuses a damaged file, too
    if settings.input and Path(settings.input).is_dir():
        if settings.problem or settings.kernel:
            raise UsageError("give input= or problem= with kernel=, not both")
        return _search_folder(settings, dry_run)
    task = read_task(
        settings.input,
        settings.problem,
        settings.kernel,
        settings.language,
        any_form=settings.has_writer,
    )
    if dry_run:
        _print_plan(settings, task)
        return 0
    outdir = _outdir(settings)
    with (
        _writer(settings) as writer,
        run_logs(outdir),
        _Evaluators(settings) as evaluators,
        live_table(settings.budget.builds) as (say, watch),
    ):
        result = search(
            task,
            evaluators(task),
            outdir,
            _config(settings, writer, say, watch),
            resume=settings.resume,
        )
    print(sentence(result, SearchFolder(outdir, task.name)))
    _tell_interrupt(result)
    return 0


def _repeat(settings: SearchSettings) -> int:
    """Repeat one evaluation of a search, and return the exit code: 1 if it is not correct."""
    asked = read_control(Path(settings.worker))
    with _Evaluators(settings) as evaluators:
        return 0 if repeat(asked, evaluators(asked.task), print).correct else 1


def _command(settings: SearchSettings) -> str:
    """Return the command line that starts the same search again in another folder."""
    given = settings.model_dump(exclude_defaults=True, exclude={"resume"})
    texts = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in given.items()
    ]
    return shlex.join(["kernelgym-train", "--backend", "mcgs", *texts])


def _outdir(settings: SearchSettings) -> Path:
    """Return the folder of a search, which need not exist yet.

    Raises:
        UsageError: If no folder can be made or written there.
    """
    path = Path(settings.outdir)
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "cannot be written to" if there.is_dir() else "is not a folder"
        raise UsageError(f"outdir={settings.outdir}: {str(there)!r} {why}; name another folder")
    return path


def _search_folder(settings: SearchSettings, dry_run: bool) -> int:
    """Search every kernel of a folder, and return the exit code."""
    tasks = read_tasks(settings.input, settings.language, any_form=settings.has_writer)
    if dry_run:
        shares = first_shares(settings.budget.builds, {task.name: task.weight for task in tasks})
        for task in tasks:
            print(f"kernel {task.name}: at least {shares[task.name]} evaluations")
            for shape in task.shapes:
                print(f"  shape {shape.name}: {shape.role}, {shape.weight:.0%} of the value")
        _print_estimate(settings, tasks)
        return 0
    outdir = _outdir(settings)
    with (
        _writer(settings) as writer,
        run_logs(outdir),
        _Evaluators(settings) as evaluators,
    ):
        for task in tasks:
            evaluators.check(task)
        config = _config(settings, writer, tell)
        result = search_folder(tasks, evaluators, outdir, config, resume=settings.resume)
    print(whole_sentence(result, outdir))
    _tell_interrupt(result)
    return 1 if result["failed"] else 0


def _tell_interrupt(result: Mapping[str, Any]) -> None:
    """Raise KeyboardInterrupt if a search was interrupted; its message says how to resume."""
    if "interrupted" in result["stopped"]:
        raise KeyboardInterrupt("interrupted; the same command with resume=true continues")


@contextlib.contextmanager
def _writer(settings: SearchSettings) -> Iterator[KernelWriter | None]:
    """Yield the writer of kernels that the settings name, after a check; None without one."""
    writer = make_writer(settings)
    if writer is None:
        yield None
        return
    with writer:
        check_writer(writer)
        yield writer


def _config(
    settings: SearchSettings,
    writer: KernelWriter | None,
    say: Callable[[str], None],
    watch: Callable[[SearchState], None] = lambda state: None,
) -> SearchConfig:
    return SearchConfig(
        **{name: getattr(settings, name) for name in _PASSED_ON},
        writer=writer,
        tactics=_tactics(settings),
        command=_command(settings),
        say=say,
        watch=watch,
    )


def _tactics(settings: SearchSettings) -> Path:
    """Return the path of the file of moves' gains that searches share."""
    return Path(settings.tactics) if settings.tactics else cache_folder() / NAME


class _Evaluators(contextlib.ExitStack):
    """Evaluators by ruleset, made when they are first needed and closed at the end."""

    def __init__(self, settings: SearchSettings) -> None:
        super().__init__()
        self._settings = settings
        self._made: dict[tuple[Ruleset, tuple[str, ...]], Evaluator] = {}

    def __call__(self, task: SearchTask) -> Evaluator:
        """Return an evaluator that follows a task's rules."""
        self.check(task)
        rules, devices = task.rules(self._settings.ruleset), self._devices(task)
        if (rules, devices) not in self._made:
            made = self._elsewhere(rules, devices) if self._settings.evaluator else None
            evaluator = made or LocalEvaluator(
                device=devices[0],
                ruleset=rules,
                workers=self._settings.workers,
                devices=devices if len(devices) > 1 else None,
            )
            self.callback(evaluator.close)
            self._made[rules, devices] = evaluator
        return self._made[rules, devices]

    def _elsewhere(self, rules: Ruleset, devices: tuple[str, ...]) -> Evaluator:
        """Return the evaluator of a verdict service, or of this machine's Ray cluster.

        Raises:
            UsageError: If the service does not answer, or judges on another device.
        """
        address = self._settings.evaluator
        if address == "ray":
            from kernelgym.evaluators.ray_evaluator import RayEvaluator

            return RayEvaluator(
                device=devices[0], ruleset=rules, workers=self._settings.workers, timing=True
            )
        found = RemoteEvaluator(address, ruleset=rules)
        try:
            there = found.capabilities.device
            if there.partition(":")[0] != devices[0].partition(":")[0]:
                raise UsageError(
                    f"evaluator={address} judges on {there}, and the kernel is for {devices[0]}"
                )
        except BaseException:
            found.close()
            raise
        return found

    def check(self, task: SearchTask) -> None:
        """Check that a task's devices exist and support what the settings ask for.

        Raises:
            UsageError: If they are not, or cannot.
            UnsupportedLanguage: If the device does not run the kernel's language.
        """
        if not self._settings.evaluator:  # a service has devices and tools of its own
            check_devices(task, self._devices(task), self._settings.ncu_every)

    def _devices(self, task: SearchTask) -> tuple[str, ...]:
        return self._settings.devices(task.start.language)


def _print_plan(settings: SearchSettings, task: SearchTask) -> None:
    """Print the settings, the number of proposals by move, and an estimate of the time."""
    for name, value in settings.model_dump().items():
        print(f"{name}: {value}")
    start = read_variant(task.start, any_form=True)
    for shape in task.shapes:
        print(f"shape {shape.name}: {shape.role}, {shape.weight:.0%} of the value")
    for each in unread_loops(file_of(start).cpp) if holds_cpp(start.language, start.source) else ():
        print(f"loop not used: {each}")
    approximate = settings.approximate or task.approximate
    proposer = rules_for(task, approximate, settings.moves)
    for move, prior in proposer.priors(start):
        count = 0
        while proposer.propose(start, move, count) is not None:
            count += 1
        print(f"{move}: {count} proposals from the start, prior {prior:.2f}")
    _print_estimate(settings, [task])


def _print_estimate(settings: SearchSettings, tasks: Sequence[SearchTask]) -> None:
    languages = {task.start.language for task in tasks}
    on_gpu = all("cpu" not in settings.devices(language) for language in languages)
    by_nvcc = any(map(builds_extension, languages))
    print(estimate(settings.budget, settings.workers, os.cpu_count() or 1, on_gpu, by_nvcc))


def estimate(
    budget: Budget, workers: int, cores: int, on_gpu: bool = False, by_nvcc: bool = False
) -> str:
    """Return an estimate of a search's time in a sentence.

    Args:
        budget: Limits of the search.
        workers: Number of kernels that are judged at the same time.
        cores: Number of processors of the machine.
        on_gpu: Whether kernels run on a GPU.
        by_nvcc: Whether kernels on a GPU are extensions, which nvcc builds.
    """
    low, high = (_LEAST_GPU, _MOST_GPU) if on_gpu else (_LEAST, _MOST)
    if on_gpu and by_nvcc:
        low, high = _LEAST_CUDA, _MOST_CUDA
    builders = min(workers, cores)
    least, most = (
        max(budget.builds * build_s / builders, budget.builds * judge_s) + verdicts * judge_s
        for build_s, judge_s, verdicts in (low, high)
    )
    if budget.seconds:
        least, most = min(least, budget.seconds), min(most, budget.seconds)
    ends = f", sooner after {budget.patience} without a gain" if budget.patience else ""
    return (
        f"at most {budget.builds} evaluations{ends}, and {low[2]} to {high[2]} verdicts to "
        f"compare the best: {least / 60:.0f} to {math.ceil(most / 60)} minutes where a build takes "
        f"{low[0]:g} to {high[0]:g} s and a verdict {low[1]:g} to {high[1]:g} s, as with "
        f"kernels of {'0.1 to 10' if on_gpu else '1 to 100'} ms"
    )
