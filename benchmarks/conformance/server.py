"""Runs KernelBench's own evaluation, one case after another, for `conformance.py` and others.

Started as a process with a checkout's folder, a device and how many calls of a kernel to time (0
for none); reads one JSON object per line and answers with
one. What escapes the evaluation is filed as KernelBench's batch script files it: not compiled. A
CUDA context that a case left broken ends the process, so that the next case gets a fresh one.
Packages that KernelBench imports for its language models are replaced by empty ones if missing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import types
from typing import Any

TRIALS = 5
# KernelBench's utils import these for prompting models; the evaluation uses none of them.
UNRELATED = {
    "dotenv": ("load_dotenv",),
    "litellm": ("completion",),
    "openai": ("OpenAI",),
    "requests": ("get",),
}


def stand_in(name: str, attributes: tuple[str, ...]) -> None:
    """Put an empty module in the place of one that is not installed."""
    if importlib.util.find_spec(name) is not None:
        return
    module = types.ModuleType(name)
    for attribute in attributes:
        setattr(module, attribute, lambda *_, **__: None)
    sys.modules[name] = module


def file_exception(error: Exception, name: str) -> dict[str, Any]:
    """File what escaped the evaluation as its batch script does."""
    key = "cuda_error" if "CUDA error" in str(error) else "other_error"
    return {"pair": [False, False], "reason": key, "message": f"{name}: {error}"[:500]}


def file_result(result: Any) -> dict[str, Any]:
    """File a result as (compiled, correctness) and what the metadata names as the cause."""
    if result is None:
        return {"pair": None, "reason": "retry", "message": "the evaluation returned None"}
    metadata = result.metadata
    for key in ("compilation_error", "runtime_error", "correctness_issue"):
        if key in metadata:
            text = f"{metadata.get(key + '_name', '')}: {metadata[key]}"
            largest = metadata.get("max_difference")
            text += f" (max difference {', '.join(largest)})" if largest else ""
            reason, message = key, text[:500]
            break
    else:
        reason, message = "", ""
    pair = [bool(result.compiled), bool(result.correctness)]
    return {"pair": pair, "reason": reason, "message": message}


def main(root: str, device: str, timed_calls: int) -> None:
    """Answer requests until the input ends."""
    # What kernels and KernelBench print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.path.insert(0, os.path.join(root, "src"))
    for name, attributes in UNRELATED.items():
        stand_in(name, attributes)
    import torch
    from kernelbench import eval as kernelbench_eval

    place = torch.device(device)
    torch.cuda.set_device(place)
    hello = {"hardware": torch.cuda.get_device_name(place), "torch": torch.__version__}
    print(json.dumps(hello), file=answers)
    timing = {"num_perf_trials": timed_calls} if timed_calls else {}
    for line in sys.stdin:
        request = json.loads(line)
        started = time.monotonic()
        try:
            result = kernelbench_eval.eval_kernel_against_ref(
                original_model_src=request["problem"],
                custom_model_src=request["kernel"],
                num_correct_trials=TRIALS,
                measure_performance=timed_calls > 0,
                **timing,
                device=place,
                backend=request["language"],
            )
            answer = file_result(result)
        except Exception as error:  # as its batch script does, for whatever a kernel may raise
            answer = file_exception(error, type(error).__name__)
            result = None
        del result
        answer["wall_s"] = round(time.monotonic() - started, 3)
        try:
            torch.cuda.empty_cache()
            torch.cuda.synchronize(place)
        except RuntimeError:
            answer["broken"] = True
        print(json.dumps(answer), file=answers)
        if answer.get("broken"):
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
