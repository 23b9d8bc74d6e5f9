"""Program of a profiled process: calls a kernel, with the profiler on for the last call.

``python profiled_call.py JOB.json FOLDER``; the job holds the kernel's source, and its inputs as
`kernelgym.judge.profiling.profiler.describe` gives them. Runs in the untrusted process: standard
library and torch only.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

_WARM_UP = 3


def made(value: Any) -> Any:
    """Return the value that a description stands for; tensors get random elements."""
    import torch

    if isinstance(value, list):
        return [made(each) for each in value]
    if not isinstance(value, dict):
        return value
    shape, kind, low, high = value["tensor"]
    dtype = getattr(torch, kind)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
    return torch.randint(low, high + 1, shape, device="cuda").to(dtype)


def load_built(libraries: list[dict[str, str]]) -> None:
    """Have the kernel's build requests load the libraries that it was judged with, in order."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "extension_stub.py")
    spec = importlib.util.spec_from_file_location("extension_stub", beside)
    assert spec is not None and spec.loader is not None
    stub = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stub)
    left = list(libraries)

    def request(asked: dict[str, Any]) -> dict[str, Any]:
        if not left:
            return {"failed": f"no library was kept for {asked['name']}"}
        library = left.pop(0)
        module = library["module"] or str(asked["name"])
        return {"module": module, "fds": [os.open(library["path"], os.O_RDONLY)]}

    stub.replace_extension_builds(request)


def main(path: str, folder: str) -> None:
    """Construct the kernel's model, call it a few times, and once more under the profiler."""
    import torch

    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    source = os.path.join(folder, "kernel.py")
    with open(source, "w", encoding="utf-8") as file:
        file.write(job["source"])
    load_built(job["libraries"])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    spec = importlib.util.spec_from_file_location("kernel", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    with torch.no_grad():
        model = module.ModelNew(*[made(each) for each in job["arguments"]])
        if isinstance(model, torch.nn.Module):
            model.to("cuda")
        inputs = [made(each) for each in job["inputs"]]
        for _ in range(_WARM_UP):
            model(*inputs)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        model(*inputs)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
