"""One evaluation by KernelBench, with its timing, in a process of its own, for the benchmark.

Reads one JSON object with a problem's and a Triton kernel's source; writes one with the kernel's
and the reference's mean time, as KernelBench reports (and rounds) them.
"""

from __future__ import annotations

import json
import os
import sys

from benchmarks.conformance.server import UNRELATED, stand_in

CORRECT_TRIALS = 1
TIMED_TRIALS = 100


def main(root: str, device: str) -> None:
    """Evaluate one kernel."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what KernelBench prints must not mix with the answer
    request = json.load(sys.stdin)
    sys.path.insert(0, os.path.join(root, "src"))
    # Its utilities import these for other ends than evaluating.
    for name, attributes in UNRELATED.items():
        stand_in(name, attributes)
    import torch
    from kernelbench import eval as kernelbench_eval

    place = torch.device(device)
    torch.cuda.set_device(place)
    result = kernelbench_eval.eval_kernel_against_ref(
        original_model_src=request["problem"],
        custom_model_src=request["kernel"],
        num_correct_trials=CORRECT_TRIALS,
        num_perf_trials=TIMED_TRIALS,
        measure_performance=True,
        device=place,
        backend="triton",
    )
    answer = {
        "correct": bool(result is not None and result.correctness),
        "kernel_ms": result.runtime if result is not None else -1.0,
        "reference_ms": result.ref_runtime if result is not None else -1.0,
        "hardware": torch.cuda.get_device_name(place),
    }
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
