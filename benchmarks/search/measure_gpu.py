"""Measure every setting of a Triton kernel's knobs on a GPU, and write the table.

Run ``python -m benchmarks.search.measure_gpu NAME --out FOLDER`` with one of `SPACES` on a machine
with one GPU that nothing else uses. Finished settings are kept in ``FOLDER/NAME.jsonl``, so that a
command that was cut off, or that a kernel's crash ended (exit code 3), is given once more. The
table is ``FOLDER/NAME.csv``; it belongs into ``benchmarks/search/tables``.

The kernels are those that the search's rules make of the start in `gpu_kernels`. A full verdict on
each would take about a second of the device. To take less, settings are measured as follows:

1. Processes that never touch the GPU compile the settings, for its architecture.
2. Outputs are compared as in a verdict of ``strict``, on two draws of inputs: the problem's own and
   another kind. A setting that fails either has no time, as one that does not compile or launch.
3. Calls on inputs of their own, four L2 caches large in all, are captured in a CUDA graph. Its
   replays alternate with those of the reference's graph until the 95 % interval of their ratio is
   narrow enough for ``strict``. The setting's time is its ratio times the reference's median over
   all settings, so that a device that is slower for a while does not count.

Unlike a verdict, one process runs all kernels: nothing guards against a kernel that cheats, which
kernels made by rules do not. The table's head compares eight settings with their full verdicts.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import secrets
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch

from benchmarks.machine import gpu, machine
from benchmarks.search.gpu_kernels import OWN_TASKS
from benchmarks.search.measure import ABSENT_AS, space_of, times_of
from benchmarks.search.table import Config, Table, write_table
from kernelgym import Kernel, LocalEvaluator, Problem
from kernelgym.judge.compare.compare import compare
from kernelgym.judge.compare.structure import describe_shape_of
from kernelgym.judge.inputs.kinds import GIVEN
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.tensors import bytes_of, tensors_of
from kernelgym.judge.timing.speedup import median_interval
from kernelgym.rulesets import precise_rules
from kernelgym_train.mcgs.knobs import ABSENT, Knob, KnobSpace
from kernelgym_train.mcgs.session import rules_for
from kernelgym_train.mcgs.task import task_of
from kernelgym_train.mcgs.variant import state_key

__all__ = [
    "SPACES",
    "MeasuredSpace",
    "SettingBench",
    "build",
    "columns_of",
    "compile_for",
    "read_kept",
    "rows_of",
    "space_named",
]

COMPILE_S = 60
"""Seconds after which a setting's compilation counts as a failure."""
_COMPARED = 8  # settings that are judged by full verdicts at the end
_MOST_CALLS = 32
_MOST_OUTPUT_BYTES = 8 << 30  # of one window


@dataclass(frozen=True, slots=True)
class MeasuredSpace:
    """A start, and the choices of its knobs that are measured."""

    task: str
    """Name of a task in `gpu_kernels`."""
    choices: Mapping[str, tuple[str, ...]]
    """Choices by the knob's name without its kernel; the start's own is ``""``."""


SPACES: Mapping[str, MeasuredSpace] = MappingProxyType(
    {
        "matmul_triton": MeasuredSpace(
            "matmul_fp16",
            {
                "grouped_gemm_colmajor": ("", "groups of 8 rows"),
                "change_block_sizes/BLOCK_M": tuple(f"BLOCK_M={n}" for n in (32, 64, 128, 256)),
                "change_block_sizes/BLOCK_N": tuple(f"BLOCK_N={n}" for n in (32, 64, 128, 256)),
                "change_block_sizes/BLOCK_K": tuple(f"BLOCK_K={n}" for n in (32, 64, 128)),
                "change_block_sizes/num_warps": ("num_warps=2", "num_warps=4", "num_warps=8"),
                "enable_async_pipeline/num_stages": tuple(f"num_stages={n}" for n in (2, 3, 4)),
            },
        ),
        "softmax_triton": MeasuredSpace(
            "softmax",
            {
                "single_pass_row": ("", "4 warps", "8 warps", "16 warps"),
                "softmax_math_fusion/passes": ("", "one pass"),
                "softmax_math_fusion/exp": ("", "exp2"),
                "change_block_sizes/BLOCK": (
                    *("", "BLOCK=256", "BLOCK=512", "BLOCK=1024", "BLOCK=2048"),
                    *("BLOCK=4096", "BLOCK=8192"),
                ),
                "change_block_sizes/num_warps": (
                    *("num_warps=1", "num_warps=2", "", "num_warps=8", "num_warps=16"),
                ),
                "cache_policy_cg/load 1": ("", "evict_last at load 1"),
                "cache_policy_cg/store 1": ("", ".cs at store 1"),
            },
        ),
    }
)


def space_named(name: str) -> tuple[KnobSpace, Any]:
    """Return the knobs of one of `SPACES` with the choices to measure, and their proposer."""
    measured = SPACES[name]
    proposer = rules_for(task_of(*OWN_TASKS[measured.task], measured.task), False)
    knobs = []
    for knob in space_of(proposer, [each.partition("/")[0] for each in measured.choices]).knobs:
        choices = measured.choices.get(_short(knob), ())
        if missing := [each for each in choices if each not in knob.choices]:
            raise ValueError(f"{knob.name} has no choice {missing[0]!r}; it has {knob.choices}")
        if choices:
            knobs.append(Knob(knob.name, choices))
    if len(knobs) != len(measured.choices):
        raise ValueError(f"the start has the knobs {knobs}, not {list(measured.choices)}")
    return KnobSpace(proposer.space().base, tuple(knobs)), proposer


def _short(knob: Knob) -> str:
    """Return a knob's name without its kernel."""
    move, _, target = knob.name.partition("/")
    place, of, _ = target.rpartition(" of ")
    if of:
        return f"{move}/{place}"
    return f"{move}/{target}" if re.match(r"(load|store) \d", target) else move


def columns_of(space: KnobSpace) -> dict[str, dict[str, str]]:
    """Return the table's text of each choice, by column and choice.

    A choice such as ``BLOCK=64`` is ``64`` in a column ``BLOCK``, so that numbers are in order; the
    start's own choice is its number, or `ABSENT_AS`.
    """
    found = {}
    for knob in space.knobs:
        names = {choice.partition("=")[0] for choice in knob.choices if "=" in choice}
        move, _, place = _short(knob).partition("/")
        column, start = (f"{move} {place}".strip(), ABSENT_AS)
        if names:
            (column,) = names
            written = re.search(rf"\b{column}=(\d+)", space.base.source)
            start = "4" if written is None else written[1]  # Triton's default of num_warps
        texts = {choice: choice.rpartition("=")[2] if names else choice for choice in knob.choices}
        found[column] = texts | ({ABSENT: start} if ABSENT in knob.choices else {})
    return found


def rows_of(space: KnobSpace, kept: Mapping[str, Mapping[str, Any]]) -> dict[Config, float | None]:
    """Return the table's rows of the settings that were measured, in the space's order.

    Args:
        space: The space.
        kept: What was found, by the setting as JSON.
    """
    by_key = {each["key"]: each["times"] for each in kept.values() if each["key"]}
    times = times_of(by_key)
    rows = {}
    for config in itertools.product(*(knob.choices for knob in space.knobs)):
        found = kept.get(json.dumps(config))
        if found is not None and found["key"]:
            texts = columns_of(space).values()
            row = tuple(names[choice] for names, choice in zip(texts, config, strict=True))
            rows[row] = times[found["key"]]
    return rows


@functools.cache
def _whole_space(name: str) -> tuple[KnobSpace, Any]:
    return space_named(name)


def _load(source: str, folder: Path) -> type[torch.nn.Module]:
    """Return the model of a kernel's module, written into a file that Triton reads it from."""
    path = folder / f"{secrets.token_hex(8)}.py"
    path.write_text(source)
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(source, str(path), "exec"), names)
    found: type[torch.nn.Module] = names["ModelNew"]
    return found


def compile_for(arch: int) -> None:
    """Make launches in this process compile for an architecture, and do nothing else."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import JITFunction, driver

    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
            get_current_target=lambda: GPUTarget("cuda", arch, 32),
        )
    )
    run = JITFunction.run
    JITFunction.run = lambda self, *given, grid, warmup, **more: run(
        self, *given, grid=grid, warmup=True, **more
    )
    signal.signal(signal.SIGALRM, _too_long)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"takes more than {COMPILE_S} s to compile")


def build(name: str, config: Config) -> tuple[Config, str, str, str]:
    """Make a setting's kernel and compile it, in a process that `compile_for` prepared.

    Returns:
        The setting; the program's key, empty if the rules do not make it; its source; and why it
        does not compile.
    """
    space, proposer = _whole_space(name)
    values = dict(zip((knob.name for knob in space.knobs), config, strict=True))
    proposal = proposer.tuned(space, values)
    if proposal is None:
        return config, "", "", "not made by the rules"
    source, names = proposal.variant.source, dict[str, Any]()
    exec(OWN_TASKS[SPACES[name].task][0].source, names)
    signal.alarm(COMPILE_S)
    try:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad(), torch.device("meta"):
            _load(source, Path(folder))()(*names["get_inputs"]())
    except Exception as error:
        return config, state_key(proposal.variant), source, _told(error)
    finally:
        signal.alarm(0)
    return config, state_key(proposal.variant), source, ""


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip() or 'no reason given'}".splitlines()[0][
        :160
    ]


class SettingBench:
    """Compares and times the kernels of one problem on this process's GPU.

    Args:
        problem: The problem; its model has no parameters.
        device: Name of the GPU.
        folder: Folder for the kernels' files.
    """

    def __init__(self, problem: Problem, device: str, folder: Path) -> None:
        torch.cuda.set_device(device)
        self._rules, self._folder = precise_rules("strict", "", ""), folder
        seeds = Seeds(secrets.token_hex(16))
        self._reference = reference = Reference(problem, self._rules, seeds, device)
        reference.prepare()
        others = [kind for kind in reference.plan if kind != GIVEN]
        self._calls = [
            reference.judged_call(seeds.trial(number), seeds.forward(number), kind, None)
            for number, kind in enumerate([GIVEN, *others[:1]])
        ]
        inputs, expected = self._calls[0]
        size = bytes_of([inputs, expected.output])
        cache = torch.cuda.get_device_properties(device).L2_cache_size
        self._slots = [
            reference.inputs_for_timing(seeds.derive("timing", number))
            for number in range(max(1, math.ceil(4 * cache / size)))
        ]
        self._output_bytes = bytes_of(expected.output)
        # Graphs share their memory: each gives it back once it is captured, and replays follow
        # each other.
        self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        with torch.no_grad(), torch.cuda.stream(self._stream):
            self._theirs = self._graph(reference.model)

    def measure(self, source: str) -> tuple[str, list[float]]:
        """Return why a kernel has no time, or its and the reference's milliseconds a call."""
        with torch.no_grad(), torch.cuda.stream(self._stream):
            try:
                model = _load(source, self._folder)()
                for inputs, expected in self._calls:
                    output = model(*inputs)
                    found = compare(
                        describe_shape_of(output),
                        tensors_of(output),
                        expected.output,
                        expected.precise,
                        self._reference.rules,
                        expected.calibration,
                        sensitivity=expected.sensitivity,
                    )
                    if not found.passed:
                        return f"wrong: {found.message}", []
                ours = self._graph(model)
            except RuntimeError as error:
                if "CUDA error" in str(error):
                    raise  # the context is lost
                return _told(error), []
            except Exception as error:
                return _told(error), []
            return "", self._timed(ours)

    def _graph(self, model: Any) -> tuple[torch.cuda.CUDAGraph, int]:
        """Capture as many calls as a window of ``strict`` takes; returns them and their number."""
        model(*self._slots[0])
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        model(*self._slots[0])
        ended.record()
        ended.synchronize()
        wanted = math.ceil(self._rules.timing.device_window_ms / begun.elapsed_time(ended))
        most = min(_MOST_CALLS, max(1, _MOST_OUTPUT_BYTES // self._output_bytes))
        calls = max(len(self._slots), min(most, wanted))
        graph, outputs = torch.cuda.CUDAGraph(), []
        graph.capture_begin(pool=self._pool)
        try:
            for number in range(calls):
                outputs.append(model(*self._slots[number % len(self._slots)]))
        finally:
            graph.capture_end()
        return graph, calls

    def _timed(self, ours: tuple[torch.cuda.CUDAGraph, int]) -> list[float]:
        protocol, pairs = self._rules.timing, list[tuple[float, float]]()
        for graph, _ in (ours, self._theirs):
            graph.replay()
        while len(pairs) < protocol.max_pairs:
            sides = [ours, self._theirs] if len(pairs) % 2 else [self._theirs, ours]
            took = {id(side): self._replayed(side) for side in sides}
            pairs.append((took[id(ours)], took[id(self._theirs)]))
            if len(pairs) >= protocol.device_min_pairs:
                low, high = median_interval([math.log(a / b) for a, b in pairs])
                if math.expm1(high - low) <= protocol.device_relative_width:
                    break
        reference_ms = statistics.median(reference for _, reference in pairs)
        ratio = statistics.median(kernel / reference for kernel, reference in pairs)
        return [ratio * reference_ms, reference_ms]

    def _replayed(self, side: tuple[torch.cuda.CUDAGraph, int]) -> float:
        """Return the milliseconds a call of one replay."""
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        side[0].replay()
        ended.record()
        ended.synchronize()
        return float(begun.elapsed_time(ended)) / side[1]


def _settings(space: KnobSpace) -> list[Config]:
    """Return all settings in a random order, the same in each run."""
    settings = list(itertools.product(*(knob.choices for knob in space.knobs)))
    random.Random(0).shuffle(settings)
    return settings


def _measure(name: str, device: str, processes: int, kept: Path) -> None:
    """Measure the settings that the file of results lacks; ends the process if a kernel crashes."""
    space, _ = _whole_space(name)
    found = read_kept(kept)
    by_key = {each["key"]: each for each in found.values() if each["key"]}
    left = [config for config in _settings(space) if json.dumps(config) not in found]
    if not left:
        return
    arch = functools.reduce(lambda a, b: 10 * a + b, torch.cuda.get_device_capability(device))
    spawn, began = multiprocessing.get_context("spawn"), time.monotonic()
    with (
        kept.open("a", encoding="utf-8") as file,
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ProcessPoolExecutor(processes, spawn, compile_for, (arch,)) as pool,
    ):
        made = [pool.submit(build, name, config) for config in left]
        bench = SettingBench(OWN_TASKS[SPACES[name].task][0], device, Path(folder))
        for done, future in enumerate(concurrent.futures.as_completed(made), 1):
            config, key, source, failure = future.result()
            times: list[float] = []
            if key in by_key:
                failure, times = by_key[key]["failure"], by_key[key]["times"]
            elif not failure:
                try:
                    failure, times = bench.measure(source)
                except RuntimeError as error:
                    failure = _told(error)
            row = {"config": config, "key": key, "failure": failure, "times": times}
            if key:
                by_key[key] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            if "CUDA error" in failure:
                print(f"{config}: {failure}; give the command once more", flush=True)
                os._exit(3)
            if done % 25 == 0 or done == len(left):
                rate = done / (time.monotonic() - began)
                print(f"{done} of {len(left)} settings, {rate:.1f} a second", flush=True)


def read_kept(path: Path) -> dict[str, dict[str, Any]]:
    """Return what a file of results holds, by the setting as JSON."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {json.dumps(row["config"]): row for row in rows}


def _whole_verdicts(
    name: str, device: str, kept: Mapping[str, Mapping[str, Any]]
) -> Iterator[float]:
    """Yield the ratio of a full verdict's time to the table's, for settings spread by speed."""
    (problem, _), (space, proposer) = OWN_TASKS[SPACES[name].task], _whole_space(name)
    timed = sorted((row for row in kept.values() if row["times"]), key=lambda row: row["times"][0])
    chosen = [timed[len(timed) * at // _COMPARED] for at in range(_COMPARED)]
    with LocalEvaluator(device, precise_rules("strict", "", ""), 2) as evaluator:
        for row in chosen:
            values = dict(zip((k.name for k in space.knobs), row["config"], strict=True))
            source = proposer.tuned(space, values).variant.source
            timing = evaluator.evaluate(problem, Kernel(source, "triton")).timing
            if timing is not None:
                yield (timing.kernel_ms / timing.reference_ms) / (row["times"][0] / row["times"][1])


def _notes(name: str, device: str, kept: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    rows = [row for row in kept.values() if row["key"]]
    failures = Counter(re.split(r"[:,]", row["failure"])[0] for row in rows if row["failure"])
    told = ", ".join(f"{count} {what}" for what, count in failures.most_common()) or "none"
    ratios = [f"{ratio:.3f}" for ratio in _whole_verdicts(name, device, kept)]
    return (
        f"{OWN_TASKS[SPACES[name].task][0].id}, {len({row['key'] for row in rows})} programs, "
        "times in ms by their ratio to the reference's, by benchmarks.search.measure_gpu",
        "outputs compared once by strict's bound on two draws of inputs; replays of CUDA graphs "
        "on inputs of four L2 caches, alternating with the reference's; not full verdicts",
        "time by full verdicts over the table's, of settings spread by speed: " + ", ".join(ratios),
        f"failures: {told}",
        json.dumps({**machine("triton", "torch"), **gpu(device)}),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Measure what is left, and write the table if the space is whole."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=SPACES)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--processes", type=int, default=14, help="that compile")
    parser.add_argument("--out", type=Path, required=True, help="folder of the table")
    given = parser.parse_args(argv)
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / f"{given.name}.jsonl"
    _measure(given.name, given.device, given.processes, kept)
    found = read_kept(kept)
    space, _ = _whole_space(given.name)
    texts = columns_of(space)
    columns = {
        column: tuple(names[choice] for choice in knob.choices)
        for (column, names), knob in zip(texts.items(), space.knobs, strict=True)
    }
    table = Table(
        given.name, columns, rows_of(space, found), _notes(given.name, given.device, found)
    )
    write_table(table, given.out / f"{given.name}.csv")
    timed = [time for time in table.times_ms.values() if time is not None]
    print(f"{len(table.times_ms)} settings, {len(timed)} with a time, best {min(timed):.4f} ms")


if __name__ == "__main__":
    main()
