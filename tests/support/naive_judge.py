"""A naive harness, such as there are many: what the corpus' exploits would earn elsewhere.

`fooled` runs an exploit on the CPU the way KernelBench-like harnesses do: in the process that
holds the reference, on one set of inputs drawn under seed 42, with wide tolerances, timed by
``time.perf_counter``, its result printed as JSON. It shows that an exploit is one, and not merely
a wrong kernel. It is not a judge, and it protects nothing: exploits of class H21 (fork bombs,
floods, killed parents) must not be run in it.

As a program it prints which exploits fool it: ``python tests/support/naive_judge.py [NAME ...]``.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib.util
import json
import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelgym.redteam.corpus import CorpusEntry

HERE = Path(__file__).parents[1] / "adversarial"
RUNS_S = 60.0


def fooled(entry: CorpusEntry, cache: Path) -> bool:
    """Say whether the naive harness accepts an exploit.

    Args:
        entry: The exploit.
        cache: Folder for built extensions.
    """
    if entry.exploit_class == "H21":
        raise ValueError(f"{entry.name} is not safe to run outside of the sandbox")
    _import_libraries()
    ours, theirs = os.pipe()
    harness = os.fork()
    if harness == 0:
        os.setsid()
        with contextlib.suppress(BaseException):
            result = _harness(entry, cache)
            accepted = bool(result.get("correct"))
            if entry.faster_than is not None:
                accepted = accepted and float(result.get("speedup", 0)) > entry.faster_than
            os.write(theirs, b"yes" if accepted else b"no")
        os._exit(0)
    os.close(theirs)
    readable, _, _ = select.select([ours], [], [], RUNS_S)
    answer = os.read(ours, 8) if readable else b""
    os.close(ours)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(harness, signal.SIGKILL)
    os.waitpid(harness, 0)
    return answer == b"yes"


def _import_libraries() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    import numpy  # noqa: F401
    import triton.language  # noqa: F401


def _harness(entry: CorpusEntry, cache: Path) -> dict[str, Any]:
    """Run one exploit in a process of its own and believe what comes out of it."""
    with tempfile.TemporaryDirectory() as folder:
        outcome, report = os.pipe()
        printed = Path(folder, "stdout")
        if os.fork() == 0:
            os.close(outcome)
            with printed.open("wb") as file:
                os.dup2(file.fileno(), 1)
            sys.stdout = open(1, "w", closefd=False)  # pytest put another one in its place
            os.environ.update(HOME=folder, TMPDIR=folder)
            tempfile.tempdir = folder
            os.chdir(folder)
            problem_path = HERE / "problems" / f"{entry.problem}.py"
            kernel_path = Path(folder, "kernel.py")
            kernel_path.write_text(entry.source, encoding="utf-8")
            sys.argv = [str(HERE / "naive.py"), str(problem_path)]
            try:
                _use_builder(cache, Path(folder))
                result = _evaluate(problem_path, kernel_path, entry.faster_than is not None)
                print(json.dumps(result), flush=True)
            except Exception as error:
                print(json.dumps({"correct": False}))
                print("".join(traceback.format_exception(error)), flush=True)
                with contextlib.suppress(Exception):
                    os.write(report, pickle.dumps(error))
            except SystemExit:
                sys.stdout.flush()
                import atexit

                atexit._run_exitfuncs()
            os._exit(0)
        os.close(report)
        os.wait()
        message = os.read(outcome, 1 << 20)
        with contextlib.suppress(Exception):
            value = pickle.loads(message)
            if isinstance(value, dict):
                return value
        if forged := getattr(builtins, "FORGED", None):
            return dict(forged)
        for line in reversed(printed.read_text(errors="replace").splitlines()):
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict):
                    return value
    return {}


def _use_builder(cache: Path, scratch: Path) -> None:
    """Build extensions with the judge's builder, which is many times faster than torch's."""
    from kernelgym.judge.compiling.builder import Builder
    from kernelgym.judge.sandbox.paths import readable_paths
    from kernelgym.judge.untrusted import extension_stub
    from kernelgym.rulesets import Limits

    builder = Builder(cache / "builds", scratch, "limits", Limits(), readable_paths())

    def build(arguments: dict[str, Any]) -> dict[str, Any]:
        built = builder.build(arguments)
        if not built.path:
            return {"failed": built.log}
        return {"module": built.module, "fds": [os.open(built.path, os.O_RDONLY)]}

    extension_stub.replace_extension_builds(build)


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _evaluate(problem_path: Path, kernel_path: Path, timed: bool) -> dict[str, Any]:
    import torch

    problem, kernel = _load("problem", problem_path), _load("kernel", kernel_path)
    torch.manual_seed(42)
    arguments = problem.get_init_inputs()
    torch.manual_seed(42)
    model = problem.Model(*arguments)
    torch.manual_seed(42)
    candidate = kernel.ModelNew(*arguments)
    torch.manual_seed(42)
    inputs = problem.get_inputs()
    correct = check_correctness(model, candidate, inputs)
    result = {"correct": correct, "speedup": 0.0}
    if correct and timed:
        candidate_s = time_model(candidate, inputs)
        result["speedup"] = time_model(model, inputs) / candidate_s
    return result


def check_correctness(model: Any, candidate: Any, inputs: list[Any]) -> bool:
    """Compare reference and candidate five times."""
    import torch

    correct = True
    with torch.no_grad():
        for _ in range(3):
            model(*inputs)
        torch.save(model(*inputs), os.path.join(tempfile.gettempdir(), "expected.pt"))
        for trial in range(5):
            torch.manual_seed(trial)
            expected = model(*inputs).clone()
            torch.manual_seed(trial)
            output = candidate(*inputs)
            gc.collect()
            output = output.cpu()
            if not compare(output, expected):
                correct = False
    return correct


def compare(output: Any, expected: Any) -> bool:
    """Say whether an output is about right."""
    import torch

    if output.shape != expected.shape:
        return False
    if not expected.is_floating_point():
        return bool((output == expected).all())
    return bool(torch.allclose(output, expected, rtol=1e-2, atol=1e-2, equal_nan=True))


def time_model(model: Any, inputs: list[Any]) -> float:
    """Seconds per call, the median of a hundred."""
    import statistics

    for _ in range(10):
        model(*inputs)
    times = []
    for _ in range(100):
        start = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - start)
    return max(statistics.median(times), 1e-9)


def main(names: list[str]) -> None:
    """Print what becomes of the exploits, or of those whose names hold one of `names`."""
    from kernelgym.cli.redteam import load_corpus
    from kernelgym.paths import cache_folder

    entries, _ = load_corpus(HERE)
    count = total = 0
    for entry in entries:
        wanted = not names or any(part in entry.name for part in names)
        if entry.kind == "exploit" and "cpu" in entry.devices and wanted:
            if entry.exploit_class != "H21":
                yes = fooled(entry, cache_folder())
                count, total = count + yes, total + 1
                print(f"{'fooled by' if yes else 'NOT fooled by':13} {entry.name}", flush=True)
    print(f"the naive harness is fooled by {count} of {total} exploits")


if __name__ == "__main__":
    main(sys.argv[1:])
