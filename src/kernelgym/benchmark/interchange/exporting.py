"""Export of a run in KernelBench's layout, for KernelBench's own scripts.

::

    FOLDER/
      level_L_problem_P_sample_S_kernel.py, ..._prompt.txt
      generation_config.yaml
      eval_results.json        results in KernelBench's terms, times in ms, full precision
      pass_at_k_results.json   under its keys; averages over problems with k samples or more
      left_out.json            samples without a result, with reasons
      results/timing/HARDWARE/baseline_time_torch.json

Contract: only runs on KernelBench are written, of one size (full or small); results, configuration
and baselines name suite and sizes, as ``kernelgym_suite`` and ``kernelgym_sizes``. `compiled` and
`correctness` are those of `kernelgym.benchmark.kernelbench`. A verdict `unavailable` is left out
and listed. KernelBench divides the mean in one file by the mean in another; kernelgym measures both
times side by side. So the baseline of a problem is the reference's time beside the kernel of its
first exported sample (KernelBench's analysis looks at sample 0 only), and ``mean / runtime`` is
that kernel's speedup. A problem without a timed kernel has the mean 0 and no trials, since
KernelBench leaves problems without a baseline out of fast_p's denominator.

A correct kernel without a time makes KernelBench's geometric mean NaN, so the export is refused
unless `untimed` is ``keep``.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernelgym.benchmark.baseline_files import baseline_file, timing_folder
from kernelgym.benchmark.kernelbench import as_kernelbench
from kernelgym.benchmark.numbers.outcomes import winner
from kernelgym.benchmark.numbers.rates import pass_at_k
from kernelgym.benchmark.pages.problem import prompt_before
from kernelgym.benchmark.recorded_runs import PlayedEpisode, RecordedRun
from kernelgym.errors import UsageError
from kernelgym.types import Problem, Timing, Turn

Which = Literal["last", "best", "first"]
"""Turn of an episode that is exported."""
_NUMBER = re.compile(r"/L(\d+)/(\d+)(@small)?$")
_SUITE = "KernelBench"
_PASS_AT = (1, 5, 10)


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """Numbers of written kernels and results, and the samples that were left out."""

    kernels: int
    results: int
    left_out: tuple[Mapping[str, Any], ...]
    hardware: str


@dataclass(frozen=True, slots=True)
class _Sample:
    number: int
    played: PlayedEpisode
    turn: Turn

    @property
    def problem(self) -> Problem:
        return self.played.record.trajectory.problem


def export_kernelbench(
    run: RecordedRun,
    folder: Path,
    *,
    level: int,
    turn: Which = "last",
    untimed: Literal["refuse", "keep"] = "refuse",
) -> ExportSummary:
    """Write the kernels, results and baselines of one level.

    Args:
        run: The run.
        folder: Folder of the files; existing files are overwritten.
        level: Level of the problems.
        turn: Turn of an episode that is exported.
        untimed: Refuse or keep correct kernels without a time.

    Raises:
        UsageError: If the run is on another suite or on two sizes, has nothing of that level, a
            correct kernel is untimed, or the folder cannot be written.
    """
    sizes = _sizes(run)
    samples = list(_samples(run, level, turn))
    if not samples:
        levels = sorted(
            {int(found[1]) for each in run.episodes if (found := _NUMBER.search(each.key[0]))}
        )
        raise UsageError(
            f"{run.name} has no episode of a numbered problem of level {level}, such as "
            f"KernelBench/L{level}/1; levels that it has: {', '.join(map(str, levels)) or 'none'}"
        )
    bare = [s for s in samples if s.turn.verdict.correct and not s.turn.verdict.timed]
    if bare and untimed == "refuse":
        busy = any(sample.turn.verdict.distrusted for sample in bare)
        again = (
            "`kernelgym eval --retime RUN` on an idle host" if busy else "judge them with timing"
        )
        raise UsageError(
            f"{len(bare)} correct kernels of {run.name} are untimed, such as "
            f"{bare[0].problem.id} sample {bare[0].played.sample}; KernelBench's geometric mean of "
            f"them is NaN: {again}, or write them with --untimed keep"
        )
    machine = str(run.machine.get("gpu", "")).partition(",")[0].strip()
    hardware = machine or samples[0].played.record.device
    left_out: list[dict[str, Any]] = []
    results: dict[str, list[dict[str, Any]]] = {}
    kernels = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for sample in samples:
            verdict = sample.turn.verdict
            name = {"problem_id": sample.number, "sample_id": sample.played.sample}
            wrote = _write_kernel(folder, level, sample)
            kernels += wrote
            if not verdict.valid:
                left_out.append({**name, "why": f"unavailable: {verdict.message}"})
                continue
            if not wrote and sample.turn.reply.kernel is not None:
                left_out.append({**name, "why": "its source is not text that UTF-8 can hold"})
            results.setdefault(str(sample.number), []).append(_entry(sample, hardware, sizes))
        for (problem, number), why in run.missing.items():
            found = _NUMBER.search(problem)
            if found and int(found[1]) == level:
                place = {"problem_id": int(found[2]), "sample_id": number}
                if place not in [
                    {k: v for k, v in each.items() if k != "why"} for each in left_out
                ]:
                    left_out.append({**place, "why": why})
        _write_json(folder / "eval_results.json", results)
        _write_json(folder / "pass_at_k_results.json", pass_at_k_results(results))
        _write_json(folder / "left_out.json", left_out)
        _write_config(folder / "generation_config.yaml", run, level, sizes)
        place_of = timing_folder(folder, hardware)
        place_of.mkdir(parents=True, exist_ok=True)
        baselines = {f"level{level}": dict(_baselines(samples, hardware, sizes))}
        _write_json(place_of / baseline_file("eager"), baselines)
    except OSError as error:
        raise UsageError(f"cannot write in {str(folder)!r}: {error.strerror}") from None
    written = sum(map(len, results.values()))
    return ExportSummary(kernels, written, tuple(left_out), place_of.name)


def pass_at_k_results(
    results: Mapping[str, Sequence[Mapping[str, Any]]], ks: Sequence[int] = _PASS_AT
) -> dict[str, Any]:
    """Return pass@k of results, under KernelBench's keys.

    Unlike in KernelBench, an average is taken over the problems with k samples or more.

    Args:
        results: Results in the form of ``eval_results.json``.
        ks: Values of k.
    """
    problems: dict[str, dict[str, Any]] = {}
    for name, entries in results.items():
        n = len(entries)
        right = sum(bool(each["correctness"] and each["compiled"]) for each in entries)
        problems[name] = {"total_samples": n, "correct_samples": right}
        problems[name] |= {f"pass@{k}": pass_at_k(n, right, k) for k in ks if k <= n}
    averages: dict[str, float] = {}
    metadata = {
        "total_problems": len(problems),
        "problems_with_samples": len(problems),
        "total_evaluated_samples": sum(each["total_samples"] for each in problems.values()),
        "total_correct_samples": sum(each["correct_samples"] for each in problems.values()),
    }
    for k in ks:
        known = [each[f"pass@{k}"] for each in problems.values() if f"pass@{k}" in each]
        metadata[f"pass@{k}_count"] = len(known)
        if known:
            averages[f"avg_pass@{k}"] = math.fsum(known) / len(known)
    return {"averages": averages, "metadata": metadata, "problems": problems}


def _sizes(run: RecordedRun) -> str:
    """Return which sizes of KernelBench a run's problems have, for the export.

    Raises:
        UsageError: If a problem is not one of KernelBench, or the sizes are mixed.
    """
    ids = list(run.planned)
    other = [identity for identity in ids if not identity.startswith(f"{_SUITE}/")]
    if other:
        raise UsageError(
            f"KernelBench's layout holds results on KernelBench only, and {run.name} has "
            f"{other[0]}; export it with --format hf"
        )
    small = [identity for identity in ids if identity.endswith("@small")]
    if small and len(small) < len(ids):
        raise UsageError(
            f"{run.name} has problems in small and in full size, and KernelBench's layout cannot "
            "tell them apart; export runs of one size"
        )
    return "small" if small else "full"


def _samples(run: RecordedRun, level: int, which: Which) -> Iterator[_Sample]:
    """Yield the exported turn of each episode, in order."""
    found = []
    for played in run.episodes:
        number = _NUMBER.search(played.key[0])
        if number is None or int(number[1]) != level or not played.turns:
            continue
        turns = played.turns
        chosen = {"last": turns[-1], "first": turns[0]}.get(which) or winner(turns)
        found.append(_Sample(int(number[2]), played, chosen))
    by_place: dict[tuple[int, int], str] = {}
    for sample in sorted(found, key=lambda each: (each.number, each.played.sample)):
        place = sample.number, sample.played.sample
        other = by_place.setdefault(place, sample.problem.id)
        if other != sample.problem.id:
            raise UsageError(
                f"{other} and {sample.problem.id} have the same number in KernelBench's layout; "
                "export runs of one of them"
            )
        yield sample


def _write_kernel(folder: Path, level: int, sample: _Sample) -> bool:
    """Write a kernel and its prompt; return False if the sample has no kernel."""
    kernel = sample.turn.reply.kernel
    if kernel is None:
        return False
    try:
        source = kernel.source.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate; no file of KernelBench's can hold it
        return False
    stem = f"level_{level}_problem_{sample.number}_sample_{sample.played.sample}"
    # As bytes: writing text would change line ends on other systems.
    (folder / f"{stem}_kernel.py").write_bytes(source)
    prompt = prompt_before(sample.played, sample.turn.index)
    if prompt:
        (folder / f"{stem}_prompt.txt").write_bytes(prompt.encode("utf-8", "replace"))
    return True


def _entry(sample: _Sample, hardware: str, sizes: str) -> dict[str, Any]:
    verdict = sample.turn.verdict
    theirs = as_kernelbench(verdict)
    metadata: dict[str, Any] = {
        "hardware": hardware,
        "device": verdict.device or sample.played.record.device,
        "correctness_trials": f"({verdict.trials_passed} / {verdict.trials})",
        "kernelgym_suite": _SUITE,
        "kernelgym_sizes": sizes,
        "kernelgym_status": verdict.status.value,
        "kernelgym_ruleset": verdict.ruleset or sample.played.record.ruleset,
    }
    if theirs.reason:
        metadata[theirs.reason] = theirs.message
    timing = verdict.timing if theirs.correctness else None
    return {
        "sample_id": sample.played.sample,
        "compiled": theirs.compiled,
        "correctness": theirs.correctness,
        "metadata": metadata,
        # Where the two medians and the speedup were rounded apart, the speedup counts.
        "runtime": timing.reference_ms / timing.speedup if timing else -1.0,
        "runtime_stats": _stats([k for k, _ in timing.windows], timing.kernel_ms) if timing else {},
    }


def _baselines(
    samples: Sequence[_Sample], hardware: str, sizes: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    groups: dict[str, list[_Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.problem.name].append(sample)
    for name, group in groups.items():
        timings = [s.turn.verdict.timing for s in group if s.turn.verdict.timing is not None]
        device = group[0].played.record.device
        beside = {"hardware": hardware, "device": device, "kernelgym_sizes": sizes}
        if timings:
            first: Timing = timings[0]
            found = _stats([r for _, r in first.windows], first.reference_ms)
            yield f"{name}.py", {**found, "mean": first.reference_ms, **beside}
        else:
            empty = {"mean": 0.0, "std": 0.0, "min": 0.0, "max": 0.0, "num_trials": 0}
            yield f"{name}.py", {**empty, **beside}


def _stats(times: Sequence[float], median: float) -> dict[str, Any]:
    """Return KernelBench's statistics of times in ms."""
    values = list(times) or [median]
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return {
        "mean": mean,
        "std": spread,
        "min": min(values),
        "max": max(values),
        "num_trials": len(values),
    }


def _write_config(path: Path, run: RecordedRun, level: int, sizes: str) -> None:
    import yaml

    policy = run.plan.policy if run.plan is not None else {}
    record = run.episodes[0].record
    config = {
        "run_name": run.name,
        "dataset_src": "local",
        "level": level,
        "model_name": policy.get("model") or policy.get("kind") or record.writer,
        "backend": record.language,
        "num_samples": run.samples or 1 + max(each.sample for each in run.episodes),
        **{
            name: policy[name]
            for name in ("temperature", "top_p", "max_tokens", "reasoning_effort")
            if name in policy
        },
        "kernelgym_suite": _SUITE,
        "kernelgym_sizes": sizes,
        "kernelgym_ruleset": record.ruleset,
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")


def _write_json(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=4, allow_nan=False) + "\n", "utf-8")
