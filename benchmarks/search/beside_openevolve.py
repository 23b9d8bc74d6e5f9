"""Compare this search with OpenEvolve, with one scripted model for all.

Run ``python -m benchmarks.search.beside_openevolve --out FILE``; it needs ``pip install
openevolve``. The contests on tables need no GPU: kernels carry the settings of a convolution that
others tuned on an A100 and an MI250X, and their times are those of the table. The other contests
are Triton kernels of `gpu_kernels`, judged on a GPU.

The model is a script behind a local chat endpoint. It changes one or two numbers of the kernel that
the prompt shows (settings to the next choice; block sizes, warps and stages of a launch up or
down), and one answer of ten is no Python. Asked to change such an answer, it repairs it first.
Three searchers have as many evaluations each:

- ``openevolve``: OpenEvolve with `kernelgym.adapters.openevolve.evaluate_for` and its own default
  settings, except that whole programs are written;
- ``mcgs``: this search by `mcgs`, with the model and, on a GPU, a move that gains nothing;
- ``auto``: this search as it is by default, which chooses between the rules and the model. On a
  table, the rules set the numbers that the start's text lists choices for.

OpenEvolve evaluates every answer. This search refuses answers that are no Python, or that it has
judged before, without a charge, and so makes more requests.

A row holds the requests to the model, the seconds, and what the searcher's best achieves: its share
of the optimum's speed on a table, and on a GPU its speedup over the start by one `duel`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.machine import gpu, machine
from benchmarks.search.gpu_kernels import OWN_TASKS
from benchmarks.search.hub import TABLES
from benchmarks.search.table import Config, Table, read_table
from kernelgym import Kernel, LocalEvaluator, Problem, Verdict, duel
from kernelgym.benchmark.run.openai_policy import EndpointSampling, OpenAIPolicy
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Evaluator
from kernelgym_train.mcgs import Budget, SearchConfig, optimize
from kernelgym_train.mcgs.writing.writer import KernelWriter

__all__ = [
    "NUMBER",
    "SEARCHERS",
    "TABLE_NAMES",
    "ScriptedModel",
    "changed",
    "contest_of",
    "serve",
    "shown",
]

SEARCHERS = ("openevolve", "mcgs", "auto")
TABLE_NAMES = ("convolution_A100", "convolution_MI250X")
NUMBER = re.compile(r"\b(BLOCK\w*|num_warps|num_stages)=(\d+)")
_BAD = 0.1  # share of the answers that are no Python
_MOST = {"num_warps": 16, "num_stages": 6}
_MOST_BLOCK = 16384
_CARRIER = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
{settings}
__global__ void carrier(const float* x, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}}
torch::Tensor run(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  carrier<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}}
"""
extension = load_inline(
    name="carrier",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x)
'''


@dataclass(frozen=True, slots=True)
class Contest:
    """One kernel that all searchers make faster."""

    problem: Problem
    start: Kernel
    tunable: Kernel
    """The start with choices of its numbers, which rules may set; the start itself on a GPU."""
    moves: Mapping[str, tuple[str, ...]]
    """Moves of the rules by searcher; all if empty."""
    make: Callable[[], Evaluator]
    """Function that returns an evaluator."""
    changed: Callable[[str, str], str]
    """Function that returns the model's kernel, by the kernel shown and a seed."""
    achieved: Callable[[Kernel], dict[str, float]]
    """Function that returns a row's figures of a searcher's best."""
    workers: int = 1
    """Number of kernels that are judged at the same time."""


def contest_of(name: str, seed: int, device: str, workers: int) -> Contest:
    """Return a contest by its name: of `TABLE_NAMES`, or of a task in `gpu_kernels`."""
    if name in TABLE_NAMES:
        return _of_table(read_table(TABLES / f"{name}.csv"), seed)
    problem, start = OWN_TASKS[name]
    return Contest(
        problem,
        start,
        start,
        {"mcgs": ("vectorize_global_loads",)},
        lambda: LocalEvaluator(device, workers=workers),
        changed,
        functools.partial(_compared, problem, start, device),
        workers,
    )


def _of_table(table: Table, seed: int) -> Contest:
    start = table.start(seed)
    start_ms = table.times_ms[start]
    assert start_ms is not None

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        config = _setting(kernel.source, table)
        ms = table.times_ms.get(config) if config is not None else None
        if "deff" in kernel.source or ms is None:
            return verdict("runtime_error", message="these settings do not run")
        return verdict("correct", speedup=start_ms / ms)

    def achieved(best: Kernel) -> dict[str, float]:
        config = _setting(best.source, table)
        ms = table.times_ms.get(config) if config is not None else None
        return {"share": 0.0 if ms is None else table.best_ms / ms}

    problem = OWN_TASKS["softmax"][0]
    return Contest(
        Problem("benchmark/settings", "benchmark", 1, "settings", problem.source),
        Kernel(_text(table, start, choices=False), "cuda"),
        Kernel(_text(table, start, choices=True), "cuda"),
        # No other move of the rules changes a setting.
        dict.fromkeys(("mcgs", "auto"), ("swap_thread_axes",)),
        lambda: ScriptedEvaluator(judged, device="cuda:0"),
        functools.partial(_next_choices, table),
        achieved,
    )


def _text(table: Table, config: Config, *, choices: bool) -> str:
    """Return a kernel's module that carries a setting, with its choices in comments or without."""
    lines = [
        f"constexpr int {name} = {value};" + (f"  // knob: {', '.join(all_)}" if choices else "")
        for (name, all_), value in zip(table.columns.items(), config, strict=True)
    ]
    return _CARRIER.format(settings="\n".join(lines))


def _setting(source: str, table: Table) -> Config | None:
    """Return the setting that a kernel carries; None if a number is missing or written twice."""
    found = [re.findall(rf"^constexpr int {name} = (\d+);", source, re.M) for name in table.columns]
    return tuple(each[0] for each in found) if all(len(each) == 1 for each in found) else None


def _next_choices(table: Table, source: str, seed: str) -> str:
    """Return a kernel with one or two settings at the next choice up or down, or no kernel."""
    numbers, source = random.Random(seed), _repaired(source)
    config = _setting(source, table)
    if config is None or numbers.random() < _BAD:
        return source.replace("def forward", "deff forward")
    names = list(table.columns)
    for name in numbers.sample(names, numbers.choice((1, 1, 2))):
        choices = table.columns[name]
        here = choices.index(config[names.index(name)])
        near = [at for at in (here - 1, here + 1) if 0 <= at < len(choices)]
        old, new = (f"constexpr int {name} = {choices[at]};" for at in (here, numbers.choice(near)))
        source = source.replace(old, new)
    return source


def shown(prompt: str) -> str:
    """Return the kernel that a prompt of either searcher asks to change."""
    after = re.split(r"# (?:The kernel to change|Current Program)\n", prompt)[-1]
    found = re.search(r"```python\n(.*?)\n```", after, re.DOTALL)
    if found is None:
        raise ValueError(f"the prompt shows no kernel: {after[:200]!r}")
    return found[1]


def changed(source: str, seed: str) -> str:
    """Return a kernel with one or two numbers of its launch doubled or halved, or no kernel."""
    numbers, source = random.Random(seed), _repaired(source)
    if numbers.random() < _BAD:
        return source.replace("def forward", "deff forward")
    places = list(NUMBER.finditer(source))
    for place in sorted(
        numbers.sample(places, min(len(places), numbers.choice((1, 1, 2)))),
        key=lambda each: -each.start(),
    ):
        name, value = place[1], int(place[2])
        least = 16 if name.startswith("BLOCK") else 1
        most = _MOST.get(name, _MOST_BLOCK)
        step = (value + 1, value - 1) if name == "num_stages" else (2 * value, value // 2)
        new = min(most, max(least, numbers.choice(step)))
        source = f"{source[: place.start()]}{name}={new}{source[place.end() :]}"
    return source


def _repaired(source: str) -> str:
    """Return a kernel without the mistake of a bad answer, which OpenEvolve may ask to change."""
    return source.replace("deff forward", "def forward")


@dataclass
class ScriptedModel:
    """The model: answers follow from the seed, the kernel shown, and how often it was shown."""

    seed: int = 0
    """Seed of the answers."""
    changed: Callable[[str, str], str] = changed
    """Function that returns the kernel to answer with, by the kernel shown and a seed."""
    asked: Counter[str] = field(default_factory=Counter)
    """Number of requests, by the kernel shown."""

    def answer(self, prompt: str) -> str:
        """Return the answer to a prompt, in the form that the prompt asks for."""
        source = shown(prompt)
        self.asked[source] += 1
        made = self.changed(source, f"{self.seed}:{self.asked[source]}:{source}")
        if "<KERNEL>" in prompt:
            return (
                f"MOVE: numbers\nGAIN: 0.2\nSUMMARY: other numbers\n\n<KERNEL>\n{made}\n</KERNEL>"
            )
        return f"```python\n{made}\n```"


@contextmanager
def serve(model: ScriptedModel) -> Iterator[str]:
    """Serve a model as a chat endpoint on this machine; yields its base address."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that http.server calls
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                text = model.answer(str(body["messages"][-1]["content"]))
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "script"}
            data = json.dumps(reply | {"choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Write no log of requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _openevolve(
    name: str, contest: Contest, url: str, folder: Path, seed: int, given: argparse.Namespace
) -> str:
    """Return the best kernel of OpenEvolve."""
    from openevolve.api import run_evolution
    from openevolve.config import Config as OpenEvolveConfig
    from openevolve.config import LLMModelConfig

    evaluator, program = folder / "evaluator.py", folder / "program.py"
    arguments = f"{name!r}, {seed}, {given.device!r}, {given.workers}"
    evaluator.write_text(
        "from benchmarks.search.beside_openevolve import contest_of\n"
        "from kernelgym.adapters.openevolve import evaluate_for\n\n"
        f"contest = contest_of({arguments})\n"
        "evaluate = evaluate_for(\n"
        "    contest.problem,\n"
        f"    language={contest.start.language!r},\n"
        f"    device={given.device!r},\n"
        "    make=contest.make,\n"
        ")\n"
    )
    program.write_text(contest.start.source)
    config = OpenEvolveConfig(language="python", random_seed=seed, diff_based_evolution=False)
    config.log_level = "WARNING"
    config.llm.models = [LLMModelConfig(name="script", api_base=url, api_key="none", weight=1.0)]
    config.evaluator.parallel_evaluations = contest.workers
    found = run_evolution(
        program, evaluator, config, given.builds, str(folder / "openevolve"), cleanup=False
    )
    return str(found.best_code)


def _ours(
    searcher: str, contest: Contest, url: str, folder: Path, seed: int, given: argparse.Namespace
) -> str:
    """Return the best kernel of this search."""
    policy = OpenAIPolicy("script", url, sampling=EndpointSampling(max_tokens=4096))
    start = contest.tunable if searcher == "auto" else contest.start
    with (
        closing(contest.make()) as evaluator,
        KernelWriter(policy, free_moves=True, repairs=0) as writer,
    ):
        config = SearchConfig(
            Budget(given.builds, min_pred_gain=0.0, floor_share=100.0),
            algo="mcgs" if searcher == "mcgs" else "tpe",
            seed=seed,
            workers=contest.workers,
            deterministic=False,
            writer=writer,
            moves=contest.moves.get(searcher, ()),
            say=lambda line: print(line, flush=True),
        )
        result = optimize(contest.problem, start, evaluator, folder / "ours", config)
    best: str = result["best"]["path"]
    return (folder / "ours" / best).read_text("utf-8")


def row_of(name: str, searcher: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Run one searcher in one contest; returns its figures."""
    contest = contest_of(name, seed, given.device, given.workers)
    model, began = ScriptedModel(seed, contest.changed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, serve(model) as url:
        if searcher == "openevolve":
            best = _openevolve(name, contest, url, Path(folder), seed, given)
        else:
            best = _ours(searcher, contest, url, Path(folder), seed, given)
        seconds = time.monotonic() - began
    return {
        **{"task": name, "searcher": searcher, "seed": seed, "evaluations": given.builds},
        **contest.achieved(Kernel(best, contest.start.language)),
        **{"requests": model.asked.total(), "seconds": round(seconds, 1)},
    }


def _compared(problem: Problem, start: Kernel, device: str, best: Kernel) -> dict[str, float]:
    """Return the speedup of a searcher's best over the start, by a duel."""
    if best.source.strip() == start.source.strip():
        return {"speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
    with LocalEvaluator(device, workers=2) as evaluator:
        found = duel(evaluator, problem, start, best, judged=True)
    return {"speedup": found.ratio, "speedup_low": found.low, "speedup_high": found.high}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the searchers that the file lacks, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [*TABLE_NAMES, *OWN_TASKS]
    parser.add_argument("--only", nargs="*", default=list(TABLE_NAMES), choices=names)
    parser.add_argument("--searchers", nargs="*", default=list(SEARCHERS), choices=SEARCHERS)
    parser.add_argument("--builds", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(10)))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    rows: list[Mapping[str, Any]] = []
    if given.out and given.out.exists():
        rows = json.loads(given.out.read_text("utf-8"))["rows"]
    there = {(row["task"], row["searcher"], row["seed"]) for row in rows}
    for name, searcher, seed in itertools.product(given.only, given.searchers, given.seeds):
        if (name, searcher, seed) in there:
            continue
        rows.append(row_of(name, searcher, seed, given))
        print(json.dumps(rows[-1]), flush=True)
        if given.out:
            on_gpu = {} if name in TABLE_NAMES else gpu(given.device)
            data = {"machine": {**machine("openevolve", "optuna"), **on_gpu}, "rows": rows}
            given.out.write_text(json.dumps(data, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
