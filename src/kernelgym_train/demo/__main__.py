"""``python -m kernelgym_train.demo``: watch a small model learn from verdicts.

Contract: as `kernelgym_train.cli`: results go to standard output, progress to standard error; 0 for
done, 1 for failed, 2 for a usage error, 130 for Ctrl-C, 143 for SIGTERM.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from kernelgym import LocalEvaluator, UsageError
from kernelgym.interruption import exit_code
from kernelgym.records.run_logs import run_logs, tell
from kernelgym_train.backends.backend import BACKENDS
from kernelgym_train.demo.demonstration import demonstrate
from kernelgym_train.demo.introduction import introduce
from kernelgym_train.demo.plan import CPU_PLAN, TINY_PLAN, Plan, on_backend
from kernelgym_train.demo.report import text_table
from kernelgym_train.demo.stages import holds_only_start, prepare
from kernelgym_train.demo.warmstart import FitProgress
from kernelgym_train.launch.launch import quiet_frameworks
from kernelgym_train.run.watchers import Lines, LiveTable

_EVERY_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns the exit code."""
    return exit_code(lambda: _run(_parser().parse_args(argv)), _say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m kernelgym_train.demo",
        description="An episode and a cheat; then a small model learns to write Triton kernels "
        "from verdicts. About seven minutes on two cores; no GPU and no download.",
    )
    add = parser.add_argument
    add("--folder", type=Path, default=Path("runs"), help="folder that the runs are kept in")
    add(
        "--name",
        help="name of the run; if not given, the first of demo, demo-2, demo-3 and so on whose "
        "folder does not exist or is only prepared",
    )
    add("--seed", type=int, default=0, help="seed of problems, model and sampling")
    # A worker waits now and then for the process that it drives.
    add("--workers", type=int, default=1 + (os.cpu_count() or 1), help="kernels judged at a time")
    add("--tiny", action="store_true", help="go through all stages in a minute; learns nothing")
    add("--backend", choices=tuple(BACKENDS), default="trl", help="backend that samples and trains")
    add("--base-url", metavar="URL", help="address of the Tinker server, with --backend tinker")
    add(
        "--prepare",
        action="store_true",
        help="make the warm-started model and the folders of problems, then end; the same command "
        "without it goes on from there",
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.base_url is not None and options.backend != "tinker":
        raise UsageError("--base-url is the address of a Tinker server; give --backend tinker, too")
    address = () if options.base_url is None else (f"tinker.base_url={options.base_url}",)
    plan = on_backend(TINY_PLAN if options.tiny else CPU_PLAN, options.backend, address)
    folder = options.folder / (options.name or _free_name(options.folder, plan, options.seed))
    if options.prepare:
        return _prepare(folder, plan, options.seed)
    started = time.monotonic()
    on_terminal = sys.stderr.isatty()
    _use_one_thread()
    with quiet_frameworks(), run_logs(folder / "main"):
        shown = demonstrate(
            folder,
            plan,
            seed=options.seed,
            workers=options.workers,
            say=_say,
            opening=_introduce,
            fitting=_fitting(),
            watchers=[LiveTable("learning", plan.steps) if on_terminal else Lines(plan.steps)],
        )
    print(text_table(shown))
    print(f"report     {folder / 'report.html'}")
    print(f"adapter    {folder / 'main' / 'model'}")
    if (folder / "merged").is_dir():
        print(f"model      {folder / 'merged'}")
    print(f"time       {time.monotonic() - started:.0f} s")
    return 0


def _prepare(folder: Path, plan: Plan, seed: int) -> int:
    """Prepare a demonstration's folder, unless that is done; returns the exit code."""
    if folder.exists() and not (folder / "start").is_dir():
        raise UsageError(
            f"there is something else in {str(folder)!r}; remove it, or give another name"
        )
    if not folder.exists():
        _say(f"drawing problems and fitting a model on noisy answers (seed {seed})")
    _use_one_thread()
    with quiet_frameworks():
        prepare(folder, plan, seed, _fitting())
    print(f"model      {folder / 'start'}")
    print(f"problems   {folder / 'problems'}")
    return 0


def _introduce() -> None:
    """Print the demonstration's first minute: an episode and a cheat, judged with times."""
    with LocalEvaluator("cpu") as judge:
        introduce(Console(), judge)


def _use_one_thread() -> None:
    """Make torch compute in one thread in this process.

    For a model this small a second thread saves a fifth of the wall time and costs 60 % more CPU
    time; beside other programs, both wait for each other in busy loops.
    """
    import torch

    torch.set_num_threads(1)


def _free_name(folder: Path, plan: Plan, seed: int) -> str:
    """Return the first of some names whose folder is free or only prepared."""
    names = itertools.chain(["demo"], (f"demo-{number}" for number in itertools.count(2)))
    return next(
        name
        for name in names
        if not (folder / name).exists() or holds_only_start(folder / name, plan, seed)
    )


def _fitting() -> Callable[[FitProgress], None]:
    last = 0.0

    def told(progress: FitProgress) -> None:
        nonlocal last
        if progress.seconds - last >= _EVERY_S or progress.batches == progress.of:
            last = progress.seconds
            _say(
                f"  batch {progress.batches}/{progress.of}, loss {progress.loss:.3f}, "
                f"{progress.seconds:.0f} s"
            )

    return told


def _say(text: str) -> None:
    tell(text, "demo: ")


if __name__ == "__main__":
    raise SystemExit(main())
