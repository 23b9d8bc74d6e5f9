"""Compare this search with OpenEvolve on GPU kernels, with one scripted model for all.

Run ``python -m benchmarks.search.beside_openevolve --out FILE`` on a machine with one GPU; it needs
``pip install openevolve``. The model is a script behind a local chat endpoint: it changes one or
two numbers of a launch (block sizes, warps, stages) in the kernel that the prompt shows, and one
answer of ten is no Python. Three searchers have as many evaluations each:

- ``openevolve``: OpenEvolve with `kernelgym.adapters.openevolve.evaluate_for`;
- ``mcgs``: this search by `mcgs`, with the model and one move of the rules that gains nothing;
- ``auto``: this search as it is by default, which chooses between the rules and the model.

At the end, each searcher's best is compared with the start by one `duel`. A row holds that speedup,
its interval, the requests to the model and the seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.machine import gpu, machine
from benchmarks.search.gpu_kernels import OWN_TASKS
from kernelgym import Kernel, LocalEvaluator, Problem, duel
from kernelgym.benchmark.run.openai_policy import EndpointSampling, OpenAIPolicy
from kernelgym_train.mcgs import Budget, SearchConfig, optimize
from kernelgym_train.mcgs.writing.writer import KernelWriter

__all__ = ["NUMBER", "SEARCHERS", "ScriptedModel", "changed", "serve", "shown"]

SEARCHERS = ("openevolve", "mcgs", "auto")
_DULL = ("vectorize_global_loads",)
NUMBER = re.compile(r"\b(BLOCK\w*|num_warps|num_stages)=(\d+)")
_BAD = 0.1  # share of the answers that are no Python
_MOST = {"num_warps": 16, "num_stages": 6}
_MOST_BLOCK = 16384


def shown(prompt: str) -> str:
    """Return the kernel that a prompt of either searcher asks to change."""
    after = re.split(r"# (?:The kernel to change|Current Program)\n", prompt)[-1]
    found = re.search(r"```python\n(.*?)\n```", after, re.DOTALL)
    if found is None:
        raise ValueError(f"the prompt shows no kernel: {after[:200]!r}")
    return found[1]


def changed(source: str, seed: str) -> str:
    """Return a kernel with one or two numbers of its launch doubled or halved, or no kernel."""
    numbers = random.Random(seed)
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


@dataclass
class ScriptedModel:
    """The model: answers follow from the seed, the kernel shown, and how often it was shown."""

    seed: int = 0
    """Seed of the answers."""
    asked: Counter[str] = field(default_factory=Counter)
    """Number of requests, by the kernel shown."""

    def answer(self, prompt: str) -> str:
        """Return the answer to a prompt, in the form that the prompt asks for."""
        source = shown(prompt)
        self.asked[source] += 1
        made = changed(source, f"{self.seed}:{self.asked[source]}:{source}")
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


def _openevolve(name: str, url: str, folder: Path, given: argparse.Namespace) -> str:
    """Return the best kernel of OpenEvolve."""
    from openevolve.api import run_evolution
    from openevolve.config import Config, LLMModelConfig

    evaluator, program = folder / "evaluator.py", folder / "program.py"
    evaluator.write_text(
        "from benchmarks.search.gpu_kernels import OWN_TASKS\n"
        "from kernelgym.adapters.openevolve import evaluate_for\n\n"
        f"problem, start = OWN_TASKS[{name!r}]\n"
        f"evaluate = evaluate_for(problem, language=start.language, device={given.device!r})\n"
    )
    program.write_text(OWN_TASKS[name][1].source)
    config = Config(language="python", random_seed=given.seed, diff_based_evolution=False)
    config.llm.models = [LLMModelConfig(name="script", api_base=url, api_key="none", weight=1.0)]
    config.evaluator.parallel_evaluations = given.workers
    found = run_evolution(
        program, evaluator, config, given.builds, str(folder / "openevolve"), cleanup=False
    )
    return str(found.best_code)


def _ours(name: str, url: str, folder: Path, algo: str, given: argparse.Namespace) -> str:
    """Return the best kernel of this search."""
    problem, start = OWN_TASKS[name]
    policy = OpenAIPolicy("script", url, sampling=EndpointSampling(max_tokens=4096))
    with (
        LocalEvaluator(given.device, workers=given.workers) as evaluator,
        KernelWriter(policy, free_moves=True, repairs=0) as writer,
    ):
        config = SearchConfig(
            Budget(given.builds, min_pred_gain=0.0, floor_share=100.0),
            algo="mcgs" if algo == "mcgs" else "tpe",
            seed=given.seed,
            workers=given.workers,
            deterministic=False,
            writer=writer,
            moves=_DULL if algo == "mcgs" else (),
            say=lambda line: print(line, flush=True),
        )
        result = optimize(problem, start, evaluator, folder / "ours", config)
    return Path(result["best"]["path"]).read_text("utf-8")


def row_of(name: str, searcher: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run one searcher on one task; returns its figures."""
    problem, start = OWN_TASKS[name]
    model, began = ScriptedModel(given.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, serve(model) as url:
        if searcher == "openevolve":
            best = _openevolve(name, url, Path(folder), given)
        else:
            best = _ours(name, url, Path(folder), searcher, given)
        seconds = time.monotonic() - began
    return {
        **{"task": name, "searcher": searcher, "seed": given.seed, "evaluations": given.builds},
        **_compared(problem, start, Kernel(best, start.language), given.device),
        **{"requests": model.asked.total(), "seconds": round(seconds, 1)},
        "numbers": dict(NUMBER.findall(best)),
    }


def _compared(problem: Problem, start: Kernel, best: Kernel, device: str) -> dict[str, float]:
    """Return the speedup of a searcher's best over the start, by a duel."""
    if best.source.strip() == start.source.strip():
        return {"speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
    with LocalEvaluator(device, workers=2) as evaluator:
        found = duel(evaluator, problem, start, best, judged=True)
    return {"speedup": found.ratio, "speedup_low": found.low, "speedup_high": found.high}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the searchers that the file lacks, and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="*", default=["softmax", "matmul_fp16"], choices=OWN_TASKS)
    parser.add_argument("--searchers", nargs="*", default=list(SEARCHERS), choices=SEARCHERS)
    parser.add_argument("--builds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(argv)
    rows: list[Mapping[str, Any]] = []
    if given.out and given.out.exists():
        rows = json.loads(given.out.read_text("utf-8"))["rows"]
    there = {(row["task"], row["searcher"], row["seed"]) for row in rows}
    for name, searcher in itertools.product(given.only, given.searchers):
        if (name, searcher, given.seed) not in there:
            rows.append(row_of(name, searcher, given))
            print(json.dumps(rows[-1]), flush=True)
            if given.out:
                about = {**machine("openevolve", "optuna", "triton"), **gpu(given.device)}
                data = {"machine": about, "rows": rows}
                given.out.write_text(json.dumps(data, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
