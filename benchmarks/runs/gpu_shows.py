"""Shows on a GPU what finished runs rest on: noise, an import judged by both rulesets, baselines.

Run ``python -m benchmarks.runs.gpu_shows --seconds 330 --out FOLDER`` with ``KERNELBENCH_ROOT`` set
to a checkout of KernelBench. Four parts, each with a share of the time, each written as it goes:

- ``device``: what ``kernelgym device --json`` measures;
- ``noise``: references judged as their own kernels under ruleset ``kernelbench``, forty times
  each (`benchmarks.runs.noise`), and once under ``strict``, which refuses them;
- ``import``: the conformance kernels that run at their problems' real sizes, as KernelBench
  folders, imported, judged by both rulesets and reported (`benchmarks.runs.judged_import`);
- ``baselines``: references in several modes (`benchmarks.runs.reference_times`).

Noise and import run at the same time: the judge's device lock keeps every timed window to itself.
Baselines follow alone, several at a time by the same lock. The same command goes on where a stopped
one was; ``--resume FOLDER`` copies what another machine of the kind left. Exit code 0 once all is
done, 3 if time ended first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.runs.judged_import import judge_imports, write_folders, write_import
from benchmarks.runs.noise import measure_noise, refuse_by_strict
from benchmarks.runs.reference_times import measure_times
from benchmarks.runs.shows import Choice, Show
from kernelgym.judge import LocalEvaluator

PARTS = ("device", "noise", "import", "baselines")
_NOISE, _IMPORT = 0.42, 0.58
"""Shares of the time after which these parts end, if baselines follow."""


def run(show: Show, parts: tuple[str, ...], reference_workers: int) -> bool:
    """Run parts; returns whether each of them went through."""
    failed: list[str] = []

    def guarded(name: str, work: Callable[[], object]) -> None:
        # One part that fails must not take the others' time on a lent device with it.
        try:
            work()
        except Exception:
            failed.append(name)
            text = traceback.format_exc()
            (show.work / f"failed_{name}.txt").write_text(text)
            show.say(f"{name} failed:\n{text}")

    if "device" in parts:
        guarded("device", lambda: _device(show))
    if {"noise", "import"} & set(parts):
        last = "baselines" not in parts
        noise = _IMPORT if last else _NOISE
        _judge(show, parts, noise, 0.95 if last else _IMPORT, guarded)
    if "baselines" in parts:
        guarded("baselines", lambda: measure_times(show, reference_workers))
    return not failed


def _judge(
    show: Show,
    parts: tuple[str, ...],
    noise_share: float,
    import_share: float,
    guarded: Callable[[str, Callable[[], object]], None],
) -> None:
    """Judge by both rulesets at the same time, each by an evaluator of its own."""
    with contextlib.ExitStack() as stack:
        loose, strict = (
            stack.enter_context(LocalEvaluator(show.device, name, show.workers, timing))
            for name, timing in (("kernelbench", True), ("strict", False))
        )
        folders = write_folders(show) if "import" in parts else []

        def by_kernelbench() -> None:
            if "noise" in parts:
                guarded("noise", lambda: measure_noise(show, loose, noise_share))
            guarded("import", lambda: judge_imports(show, loose, folders, import_share))

        def by_strict() -> None:
            if "noise" in parts:
                guarded("strict", lambda: refuse_by_strict(show, strict))
            guarded("import_strict", lambda: judge_imports(show, strict, folders, import_share))

        threads = [threading.Thread(target=work) for work in (by_kernelbench, by_strict)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if folders:
        guarded("import_report", lambda: write_import(show, folders))


def _device(show: Show) -> None:
    """Write what ``kernelgym device --json`` says."""
    if (show.out / "device_gpu.json").exists():
        return
    command = [sys.executable, "-m", "kernelgym", "device", show.device, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=max(30.0, show.left()))
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    show.write("device_gpu", json.loads(done.stdout), "device")
    show.say("device: done")


def finished(show: Show, parts: tuple[str, ...]) -> bool:
    """Return whether each part's result is whole."""

    def read(name: str) -> dict[str, object]:
        path = show.out / f"{name}.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    noise, times = read("noise_gpu"), read("baselines_gpu")
    whole = {
        "device": bool(read("device_gpu")),
        "noise": len(noise.get("verdicts", ())) >= show.choice.times * len(show.choice.noise),  # type: ignore[arg-type]
        "import": _all_judged(show),
        "baselines": bool(times)
        and int(str(times["measured"])) + int(str(times["failed"])) >= int(str(times["asked"])),
    }
    return all(whole[part] for part in parts)


def _all_judged(show: Show) -> bool:
    for run_folder in (show.work / "runs").glob("*"):
        counts = [
            len((run_folder / name).read_text().splitlines()) if (run_folder / name).exists() else 0
            for name in ("generations.jsonl", "verdicts.jsonl")
        ]
        if counts[0] > counts[1]:
            return False
    return True


def main(arguments: list[str] | None = None, choice: Choice | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of results")
    parser.add_argument("--seconds", type=float, default=330.0, help="time for all parts together")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, with commas")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workers", type=int, default=4, help="of each of two judges")
    parser.add_argument("--reference-workers", type=int, default=8, help="references at a time")
    parser.add_argument("--resume", type=Path, help="folder of an earlier call, to go on with")
    options = parser.parse_args(arguments)
    parts = tuple(options.parts.split(","))
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    if options.resume:
        shutil.copytree(options.resume, options.out, dirs_exist_ok=True)
    show = Show(
        *(options.out, options.device, options.seconds, choice or Choice()),
        workers=options.workers,
    )
    through = run(show, parts, options.reference_workers)
    if not through:
        return 1
    return 0 if finished(show, parts) else 3


if __name__ == "__main__":
    sys.exit(main())
