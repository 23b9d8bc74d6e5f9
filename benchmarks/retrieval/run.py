"""All that is measured of retrieval, into one file.

Run ``python -m benchmarks.retrieval.run [--out FILE] [--queries N] [--model FOLDER]``. With
``KERNELBENCH_ROOT`` set, KernelBench's problems are asked of each other, too; with ``--model``, a
model of text is compared, on the source and on the operators.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.retrieval import kernelbench, recall, repairs, speed
from kernelgym.retrieval.embedding import Embedder
from kernelgym.retrieval.models import find_embedder
from kernelgym.retrieval.synthetic import synthetic_index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--model", default="")
    options = parser.parse_args()
    began, began_cpu = time.perf_counter(), time.process_time()
    index = synthetic_index("triton", "cpu")
    wall, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    result: dict[str, Any] = {
        "machine": machine("numpy", "faiss-cpu", "sentence-transformers"),
        "build": {
            "entries": len(index.entries),
            "wall_s": round(wall, 2),
            "cpu_s": round(cpu, 2),
            "per_cpu_s": round(len(index.entries) / cpu),
        },
    }
    models: dict[str, tuple[Embedder, str]] = {}
    if options.model:
        embedder = find_embedder(options.model)
        models = {"model, source": (embedder, "source"), "model, view": (embedder, "operators")}
    result["recall"] = recall.measured(index, recall.queries(options.queries), models)
    if os.environ.get("KERNELBENCH_ROOT"):
        result["recall"] += kernelbench.leave_one_out(models)
    result["repairs"] = repairs.measured()
    result["search"] = speed.searches()
    result["remembered"] = speed.remembered()
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    for key in ("recall", "repairs", "search"):
        for row in result[key]:
            print(key, row)
    print(result["build"], result["remembered"])


if __name__ == "__main__":
    main()
