"""Time verdicts with and without each of the judge's hand-written fast paths.

Run ``python -m benchmarks.judge.speed_paths --part PART [--device cuda:0] [--out FILE]``. A part
that FILE holds already is replaced; the others stay. Each part alternates both ways in one run, and
``ratio`` is the median of the times without the path over the median with it:

- `cpp` and `cuda`: one build of an extension, which is all but 0.1 s (on a GPU 0.5 to 1 s) of its
  verdict, with the thin headers and with torch's own; `cuda` also with nvcc's stages one after
  another, and compiles for sm_90 without needing a GPU. `cpp` also makes and uses the precompiled
  header of ``load_inline(use_pch=True)``;
- `interpreter`: verdicts of correct interpreted kernels of Synthetic-L1, with Triton's interpreter
  as it is and as `judge/untrusted/triton/fast_interpreter` patches it;
- `inputs`: a verdict under the kernelbench ruleset of an elementwise problem of KernelBench's size,
  and the time that drawing the inputs of its five calls on one core adds.

Wall times move with the load of the machine; CPU seconds of the processes that a build started,
which stand beside them, do so less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.judge.judge_cpu import renamed
from benchmarks.machine import gpu, machine
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.compiling import compilation, source
from kernelgym.judge.compiling.builder import Builder
from kernelgym.judge.compiling.cpp_compiler import find_compiler, toolchain
from kernelgym.judge.sandbox.paths import readable_paths
from kernelgym.rulesets import Limits
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.types import Job, Kernel, Problem

REPEATS = 3
CPP = """#include <torch/extension.h>
#include <cmath>
// %s
torch::Tensor f(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  at::parallel_for(0, x.numel(), 1024, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) out[i] = std::tanh(in[i]);
  });
  return y;
}
"""
CUDA = """#include <torch/extension.h>
// %s
__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > 0 ? x[i] : 0;
}
torch::Tensor f(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  relu<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
PROBLEM = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand({rows}, 393216)]
def get_init_inputs():
    return []
"""
ROWS = {"cpu": 256, "cuda": 4096}  # on a GPU KernelBench/L1/19's own 6.4 GB, on a CPU a sixteenth
RELU = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
RELU += "        return torch.relu(x)\n"


def spent(run: Callable[[], object]) -> dict[str, float]:
    """Return the wall time and the CPU seconds of ended child processes of one call."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run()
    wall_s, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(wall_s, 3), "cpu_s": round(cpu_s, 2)}


def compared(ways: dict[str, Callable[[], dict[str, float]]], repeats: int) -> dict[str, Any]:
    """Measure all ways in turn; return their times and their ratios to the first one."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, measure in ways.items():
            runs[name].append(measure())
    result: dict[str, Any] = {"runs": runs}
    base, *others = ways
    for name in others:
        result[f"ratio_{name}"] = {
            field: round(_median(runs[name], field) / _median(runs[base], field), 2)
            for field in runs[base][0]
            if _median(runs[base], field)
        }
    return result


def _median(runs: list[dict[str, float]], field: str) -> float:
    return statistics.median(run[field] for run in runs)


@contextmanager
def torchs_own_headers() -> Iterator[None]:
    """Compile every unit against torch's own headers."""
    with mock.patch.object(source.SourceUnit, "can_be_thin", property(lambda unit: False)):
        yield


def builds(folder: Path, cuda: bool) -> dict[str, Any]:
    """Measure builds of sources that were never built before."""
    scratch = folder / "scratch"
    scratch.mkdir()
    capability = (9, 0) if cuda else None
    limits = Limits(build_s=600.0)
    builder = Builder(
        folder / "cache", scratch, "ns+landlock+seccomp", limits, readable_paths(), capability
    )
    numbers = iter(range(1000))

    def build() -> None:
        mark = f"{os.getpid()} {time.time()} {next(numbers)}"
        request: dict[str, Any] = {
            "name": "e",
            "functions": {"f": "f"},
            "cpp_sources": [CPP % mark],
        }
        if cuda:
            declared = "torch::Tensor f(torch::Tensor x);"
            request |= {"cpp_sources": [declared], "cuda_sources": [CUDA % mark]}
        built = builder.build(request)
        if not built.path:
            raise SystemExit(built.log)

    def plainly() -> dict[str, float]:
        with torchs_own_headers():
            return spent(build)

    build()  # the unit that binds functions, which is kept
    ways = {"thin": lambda: spent(build), "torchs_own": plainly}
    if cuda:
        serial = folder / "cache" / "serial.py"
        serial.write_text("import os, sys\nos.execv(sys.argv[1], sys.argv[1:])\n")
        builder._readable += (str(serial),)

        def one_by_one() -> dict[str, float]:
            with mock.patch.object(compilation, "STAGES", serial):
                return spent(build)

        ways["thin_stages_one_by_one"] = one_by_one
        return compared(ways, REPEATS)
    return compared(ways, REPEATS) | {"precompiled": precompiled(folder)}


def precompiled(folder: Path) -> dict[str, Any]:
    """Make and use a precompiled ``torch/extension.h``; sizes and times."""
    tools = toolchain(find_compiler())
    flags = [tools.compiler, *tools.flags, *tools.includes(python=True)]
    header, unit = folder / "pch.h", folder / "unit.cpp"
    header.write_text("#include <torch/extension.h>\n")
    bind = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }\n'
    unit.write_text(f'#include "{header}"\n{CPP % "precompiled"}{bind}')
    made = spent(lambda: subprocess.run([*flags, "-x", "c++-header", str(header)], check=True))
    command = [*flags, "-DTORCH_EXTENSION_NAME=e", "-c", str(unit), "-o", str(folder / "unit.o")]
    used = [spent(lambda: subprocess.run(command, check=True)) for _ in range(REPEATS)]
    size = header.with_name("pch.h.gch").stat().st_size
    return {"made": made, "used": used, "bytes": size}


def interpreter(folder: Path, kernels: int) -> dict[str, Any]:
    """Measure verdicts of unseen interpreted kernels, by one worker each way."""
    problems = list(SyntheticSuite().problems(level=1))[:kernels]
    sources = [Job(problem, solve(problem, "triton")) for problem in problems]
    numbers = iter(range(1_000_000))

    def judged(evaluator: LocalEvaluator) -> None:
        batch = [Job(job.problem, renamed(job.kernel, next(numbers))) for job in sources]
        wrong = [each for each in evaluator.evaluate_many(batch) if not each.correct]
        if wrong:
            raise SystemExit(f"a correct kernel was judged {wrong[0].status}: {wrong[0].message}")

    with LocalEvaluator(timing=False, cache_dir=folder) as fast:
        judged(fast)  # the workers are started, and know the problems
        os.environ["KERNELGYM_PLAIN_INTERPRETER"] = "1"
        with LocalEvaluator(timing=False, cache_dir=folder) as plain:
            judged(plain)
            ways = {"fast": fast, "plain": plain}
            found = compared(
                {
                    name: lambda each=each: spent(lambda: judged(each))
                    for name, each in ways.items()
                },
                REPEATS + 2,
            )
    return found | {"kernels": len(sources)}


def inputs(folder: Path, device: str) -> dict[str, Any]:
    """Measure a verdict under `kernelbench`, and drawing its inputs as KernelBench does."""
    import torch

    kind = device.partition(":")[0]
    text = PROBLEM.format(rows=ROWS[kind])
    names: dict[str, Any] = {}
    exec(text, names)
    walls = []
    with LocalEvaluator(
        device=device, ruleset="kernelbench", timing=kind != "cpu", cache_dir=folder
    ) as e:
        for number in range(REPEATS + 1):
            problem = Problem("Test/1", "Test", 1, "relu", text)
            verdict = e.evaluate(problem, Kernel(f"{RELU}# {number}\n", "triton"))
            if not verdict.correct:
                raise SystemExit(verdict.message)
            walls.append(verdict.wall_s)
    serial = []
    for _ in range(REPEATS):
        torch.manual_seed(42)
        started = time.perf_counter()
        [drawn.to(device) for drawn in names["get_inputs"]()]
        serial.append(time.perf_counter() - started)
    verdict_s, draws_s = statistics.median(walls[1:]), 5 * statistics.median(serial)
    return {
        "verdicts_s": walls,
        "one_serial_draw_s": serial,
        "elements": ROWS[kind] * 393216,
        "serial_draws_of_a_verdict_over_verdict": round(draws_s / verdict_s, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--part", required=True, choices=("cpp", "cuda", "interpreter", "inputs"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kernels", type=int, default=24, help="interpreted kernels of a round")
    parser.add_argument("--out", type=Path, help="JSON file that keeps every part's numbers")
    options = parser.parse_args()
    recorded = machine("torch", "triton") | gpu(options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.part == "interpreter":
            found = interpreter(folder, options.kernels)
        elif options.part == "inputs":
            found = inputs(folder, options.device)
        else:
            found = builds(folder, options.part == "cuda")
    print(json.dumps(found, indent=1))
    if options.out:
        before = json.loads(options.out.read_text()) if options.out.exists() else {}
        key = options.part if options.device == "cpu" else f"{options.part}_{options.device}"
        after = before | {key: {"machine": recorded, **found}}
        options.out.write_text(json.dumps(after, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
