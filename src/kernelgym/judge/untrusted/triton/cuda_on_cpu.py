"""Lets an interpreted kernel's Python code run as on a GPU: the device ``cuda`` means the CPU.

Kernels written for a GPU assert that their inputs lie on one, make tensors there and ask for its
number of processors. In this process

- tensors of the CPU say that they lie on ``cuda:0``, and what is made on or moved to a CUDA device
  stays on the CPU;
- `torch.cuda` and Triton's driver describe an H100; streams and events do nothing but tell
  `stream_order.py` what waits for what.

Not covered: CUDA graphs, operators registered for CUDA alone, `torch.ops.aten` functions that take
a device, and a tensor that a kernel leaves on the CPU, which a GPU's verdict would refuse.

Loaded by path in the untrusted process: standard library, torch and triton only. Like
`bounds_check.py`, it serves honest kernels and is no security boundary.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from types import SimpleNamespace
from typing import Any

import torch

_CUDA, _CPU = torch.device("cuda", 0), torch.device("cpu")
_TARGET = ("cuda", 90, 32)
_PROPERTIES = {
    "name": "NVIDIA H100 80GB HBM3",
    "major": 9,
    "minor": 0,
    "total_memory": 80 << 30,
    "multi_processor_count": 132,
    "warp_size": 32,
    "regs_per_multiprocessor": 65536,
    "max_threads_per_multi_processor": 2048,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "L2_cache_size": 50 << 20,
    "is_integrated": 0,
    "is_multi_gpu_board": 0,
}
_OF_DRIVER = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}
_MADE_ON_A_DEVICE = (
    *("arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "empty"),
    *("empty_like", "empty_permuted", "empty_quantized", "empty_strided", "eye", "full"),
    *("full_like", "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace"),
    *("ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like"),
    *("randperm", "range", "scalar_tensor", "sparse_compressed_tensor", "sparse_coo_tensor"),
    *("sparse_csr_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like"),
)
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")
_NOTHING = (
    *("empty_cache", "set_device", "init", "ipc_collect"),
    *("reset_peak_memory_stats", "reset_accumulated_memory_stats", "set_sync_debug_mode"),
    *("reset_max_memory_allocated", "set_rng_state"),
)
_ZERO = (
    *("current_device", "memory_allocated", "max_memory_allocated", "memory_reserved"),
    "max_memory_reserved",
)


_Changes = list[tuple[Any, str, Any]]
"""Attributes to set: owners, names and new values."""


def _order() -> Any:
    """Return this process's `StreamOrder`, from the module that the zygote has loaded."""
    return sys.modules["_kernelgym_triton_stream_order"].__dict__["ORDER"]


def changes() -> _Changes:
    """Return the attributes to set so that the device ``cuda`` means the CPU in a process.

    A zygote prepares it: making the functions takes several times as long as setting them.
    """
    made = [(torch, name, _on_cpu(getattr(torch, name))) for name in _MADE_ON_A_DEVICE]
    tensor = torch.Tensor
    made += [(tensor, name, _on_cpu(getattr(tensor, name))) for name in (*_NEW, "to")]
    return [*made, *_of_tensors(), *_of_device(), _of_driver()]


def take_cuda_for_cpu(prepared: _Changes) -> None:
    """Have the device ``cuda`` mean the CPU in this process, from now on."""
    for owner, name, value in prepared:
        setattr(owner, name, value)


def _meant(device: Any) -> Any:
    """Return the CPU if a device is a CUDA device, any other value unchanged."""
    if isinstance(device, torch.device):
        return _CPU if device.type == "cuda" else device
    return _CPU if isinstance(device, str) and device.partition(":")[0] == "cuda" else device


def _on_cpu(function: Any) -> Any:
    @functools.wraps(function)
    def made(*args: Any, **kwargs: Any) -> Any:
        if (device := kwargs.get("device")) is not None:
            kwargs["device"] = _CPU if type(device) is int else _meant(device)
        elif len(args) > 1 and isinstance(args[1], (str, torch.device)):  # `Tensor.to`
            args = (args[0], _meant(args[1]), *args[2:])
        return function(*args, **kwargs)

    return made


def _of_tensors() -> _Changes:
    tensor = torch.Tensor
    real = torch._C.TensorBase.device.__get__

    def device(self: Any) -> torch.device:
        found: torch.device = real(self)
        return _CUDA if found.type == "cpu" else found

    class Generator(torch.Generator):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, _meant(device))

    from torch.utils import _device

    begin = _device.DeviceContext.__init__
    return [
        (tensor, "device", property(device)),
        (tensor, "is_cuda", property(lambda self: device(self).type == "cuda")),
        (tensor, "is_cpu", property(lambda self: False)),
        (tensor, "get_device", lambda self: 0),
        (tensor, "cuda", lambda self, *args, **kwargs: self),
        (tensor, "pin_memory", lambda self, *args, **kwargs: self),
        (tensor, "record_stream", lambda self, stream: None),
        (torch.nn.Module, "cuda", lambda self, *args, **kwargs: self),
        (torch, "Generator", Generator),
        (
            *(_device.DeviceContext, "__init__"),
            lambda self, device: begin(self, _meant(torch.device(device))),
        ),
    ]


class _Stream:
    """Stand-in for a CUDA stream whose work is always done; the order of its work is checked."""

    device, priority = _CUDA, 0

    def __init__(self, *args: Any, number: int | None = None, **kwargs: Any) -> None:
        self.cuda_stream = _order().new() if number is None else number
        self._before: list[int] = []

    def synchronize(self) -> None:
        _order().finish(_order().marks(self.cuda_stream))

    def wait_stream(self, stream: Any) -> None:
        _order().wait(self.cuda_stream, _order().marks(stream.cuda_stream))

    def wait_event(self, event: Any) -> None:
        _order().wait(self.cuda_stream, event.marks)

    def record_event(self, event: Any = None) -> Any:
        event = event or _Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    def __enter__(self) -> Any:
        self._before.append(_order().current)
        _order().current = self.cuda_stream
        return self

    def __exit__(self, *args: Any) -> None:
        _order().current = self._before.pop()


class _Event:
    """Stand-in for a CUDA event that has always happened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.marks: dict[int, int] = {}

    def record(self, stream: Any = None) -> None:
        self.marks = _order().marks(_number_of(stream))

    def wait(self, stream: Any = None) -> None:
        _order().wait(_number_of(stream), self.marks)

    def synchronize(self) -> None:
        _order().finish(self.marks)

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 1.0  # nothing is measured here, and a kernel may divide by it


def _number_of(stream: Any) -> int:
    return _order().current if stream is None else int(stream.cuda_stream)


def _make_current(stream: Any) -> None:
    if stream is not None:
        _order().current = stream.cuda_stream


class _Device:
    """Stand-in for the context manager that selects a CUDA device."""

    def __init__(self, device: Any = None) -> None:
        self.idx, self.prev_idx = 0, -1

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: Any) -> None:
        pass


class _Graph:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "a CUDA graph cannot be captured here, where cuda means the CPU; judge the kernel on a "
            "GPU, or launch without a graph"
        )


def _answering(value: Any) -> Any:
    return lambda *args, **kwargs: value


def _of_device() -> _Changes:
    # A function of its own for each name: torch.compile's tables take no object twice.
    made: dict[str, Any] = {name: _answering(None) for name in _NOTHING}
    made |= {name: _answering(0) for name in _ZERO}
    made |= {
        **{"is_available": _answering(True), "is_bf16_supported": _answering(True)},
        "current_stream": lambda device=None: _Stream(number=_order().current),
        "default_stream": lambda device=None: _Stream(number=0),
        "set_stream": _make_current,
        "synchronize": lambda device=None: _order().finish(),
        "device_count": lambda: 1,
        "get_device_name": lambda device=None: _PROPERTIES["name"],
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": lambda device=None: SimpleNamespace(**_PROPERTIES),
        "mem_get_info": lambda device=None: (80 << 30, 80 << 30),
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "is_current_stream_capturing": lambda: False,
        "stream": lambda stream: contextlib.nullcontext() if stream is None else stream,
        **{"Stream": _Stream, "Event": _Event},
        **{"device": _Device, "device_of": type("_DeviceOf", (_Device,), {})},
        **{"CUDAGraph": _Graph, "graph": type("_Capture", (_Graph,), {})},
    }
    return [(torch.cuda, name, value) for name, value in made.items()]


def _of_driver() -> tuple[Any, str, Any]:
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    active = SimpleNamespace(
        get_active_torch_device=lambda: _CUDA,
        get_current_device=lambda: 0,
        get_current_stream=lambda device=None: _order().current,
        get_current_target=lambda: GPUTarget(*_TARGET),
        get_device_interface=lambda: torch.cuda,
        set_current_device=lambda device: None,
        utils=SimpleNamespace(get_device_properties=lambda device=0: {**_OF_DRIVER}),
    )
    return driver, "_active", active
