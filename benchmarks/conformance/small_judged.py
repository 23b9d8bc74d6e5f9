"""Judge right and wrong kernels of ten `@small` problems on the CPU.

Run ``python -m benchmarks.conformance.small_judged --kernelbench-root DIR [--out FILE]`` with a
checkout of KernelBench, of which nothing is shipped here. The kernels are those of `kernels/`, in
Triton, run by its interpreter, under ``strict``. Exit code 0 if every right kernel is correct and
every wrong one wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.conformance.cases import FOLDER, parse_case
from benchmarks.machine import machine
from kernelgym.judge import LocalEvaluator
from kernelgym.suites.kernelbench import KernelBenchSuite
from kernelgym.types import Status

PAIRS = (
    ("l1_015_lower_triangular_correct", "l1_015_lower_triangular_without_diagonal"),
    ("l1_023_softmax_correct", "l1_023_softmax_without_sum"),
    ("l1_040_layer_norm_correct", "l1_040_layer_norm_no_root"),
    ("l1_047_sum_correct", "l1_047_sum_drops_axis"),
    ("l1_089_cumsum_correct", "l1_089_cumsum_without_carry"),
    ("l2_012_gemm_leaky_correct", "l2_012_gemm_leaky_ignores_slope"),
    ("l2_029_mish_mish_correct", "l2_029_mish_once"),
    ("l2_086_divide_gelu_correct", "l2_086_divide_relu"),
    ("l3_004_lenet_correct", "l3_004_lenet_forgets_relu"),
    ("l3_034_rnn_correct", "l3_034_rnn_ignores_state"),
)
"""Names of a right kernel and of a wrong one for the same problem."""


def main() -> int:
    """Judge the pairs; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernelbench-root", required=True)
    parser.add_argument("--out", type=Path, help="JSON file for the verdicts")
    given = parser.parse_args()
    suite = KernelBenchSuite(given.kernelbench_root, sizes="small")
    rows: list[dict[str, Any]] = []
    with LocalEvaluator("cpu", "strict", timing=False) as evaluator:
        for pair in PAIRS:
            for name, wanted in zip(pair, (Status.CORRECT, Status.WRONG), strict=True):
                case = parse_case(name, (FOLDER / f"{name}.py").read_text("utf-8"))
                (problem,) = suite.problems(ids=case.problem.partition("/")[2])
                verdict = evaluator.evaluate(problem, case.kernel)
                row = {"problem": problem.id, "kernel": name, "status": verdict.status.value}
                row |= {"as_expected": verdict.status is wanted, "wall_s": round(verdict.wall_s, 1)}
                rows.append(row)
                print(*row.values(), verdict.message[:120], flush=True)
    if given.out:
        result = {"machine": machine("torch", "triton"), "rows": rows}
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row["as_expected"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
