"""The trusted side's reference: the problem's own model, its inputs and what they should give.

Lives in the worker process only. A problem's source is trusted code; if it fails, that is the
judge's failure (`JudgeError`), never the kernel's.

The model is built on the CPU under the init seed, as a candidate builds its own, and then moved
to the device, so that weights are the same on every device. Inputs under secret seeds are drawn
on the device itself; public ones are drawn on the CPU and moved, as KernelBench does.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from kernelgym.errors import JudgeError
from kernelgym.rulesets import Ruleset
from kernelgym.types import Problem

__all__ = [
    "Expected",
    "Reference",
    "Seeds",
    "allow_tf32",
    "place",
    "same_bytes",
    "seed_all",
    "tensors_of",
]

_CPU = torch.device("cpu")
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Seeds:
    """All randomness of one verdict, derived from one secret (or from KernelBench's 42)."""

    secret: str
    """Hexadecimal; empty for the public seeds."""

    def derive(self, purpose: str, index: int = 0) -> int:
        """Return 63 bits for one purpose; a candidate that is told one cannot tell another."""
        text = f"{self.secret}:{purpose}:{index}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1

    def init(self) -> int:
        """Seed under which both sides construct their models."""
        return self.derive("init") if self.secret else 42

    def trial(self, index: int) -> int:
        """Seed under which the inputs of one judged call are drawn."""
        return self.derive("trial", index) if self.secret else _kernelbench_trial_seeds()[index]

    def forward(self, index: int) -> int:
        """Seed set before one forward call on both sides, for layers that draw (dropout)."""
        return self.derive("forward", index) if self.secret else self.trial(index)

    def calls(self, ruleset: Ruleset) -> int:
        """Number of judged calls."""
        span = ruleset.max_calls - ruleset.min_calls + 1
        return ruleset.min_calls + self.derive("calls") % span


@lru_cache(maxsize=1)
def _kernelbench_trial_seeds() -> list[int]:
    """The trial seeds KernelBench derives from its seed 42: the same for every kernel."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        return [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(64)]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reference gives for one set of inputs."""

    output: Any
    """Tensor, or nested tuples, lists and dicts of tensors and numbers."""
    precise: Any
    """The same computed in fp64; None if the reference cannot be run so."""
    mutates_inputs: bool


class Reference:
    """One problem's model, built under one seed, on one device.

    Args:
        problem: The problem.
        ruleset: Decides the precision, the use of TF32, and whether an fp64 twin is made.
        seeds: Randomness of this verdict.
        device: Where it runs, such as ``cpu`` or ``cuda:0``.

    Raises:
        JudgeError: If the problem's own code fails.
    """

    def __init__(
        self, problem: Problem, ruleset: Ruleset, seeds: Seeds, device: str = "cpu"
    ) -> None:
        self._seeds = seeds
        self.device = torch.device(device)
        self.dtype = _DTYPES[ruleset.precision]
        self.draws = False
        """Whether a forward call so far consumed random numbers."""
        self._draws_inputs_on_device = self.device.type != "cpu" and ruleset.secret_seed
        if self.device.type == "cuda":
            allow_tf32(ruleset.tf32)
        with _our_fault("define its model"), torch.no_grad():
            names = _namespace(problem.source, problem.id)
            self._get_inputs: Callable[[], Any] = names["get_inputs"]
            seed_all(seeds.init())
            # These stay on the CPU: both sides construct there.
            self.init_args = [self._cast(v, _CPU) for v in names["get_init_inputs"]()]
            seed_all(seeds.init())
            self.model = place(names["Model"](*self.init_args), self.device, self.dtype)
        self._precise = self._twin() if ruleset.tolerance == "fp64" else None
        self.stateful = any(True for _ in self.model.buffers())
        """Its output may depend on the calls made before, so both sides must make the same."""

    def _twin(self) -> torch.nn.Module | None:
        try:
            return place(copy.deepcopy(self.model), self.device, torch.float64)
        except Exception:
            return None  # not every module can be copied; the fixed tolerances apply then

    def inputs(self, seed: int) -> list[Any]:
        """Draw one set of inputs, floating-point tensors cast to the ruleset's precision."""
        with _our_fault("draw its inputs"), torch.no_grad():
            return [self._cast(value, self.device) for value in self._draw(seed)]

    def _draw(self, seed: int) -> Any:
        if self._draws_inputs_on_device:
            seed_all(seed, self.device)
            try:
                with self.device:
                    return self._get_inputs()
            except torch.OutOfMemoryError:
                raise
            except Exception:
                self._draws_inputs_on_device = False  # it insists on the CPU somewhere
        seed_all(seed)
        return self._get_inputs()

    def expect(self, inputs: list[Any], forward_seed: int) -> Expected:
        """Run the reference (and its fp64 twin) on `inputs`, which are left as they are."""
        with _our_fault("run"), torch.no_grad():
            given = copy.deepcopy(inputs)
            seed_all(forward_seed, self.device)
            before = _random_state(self.device)
            output = self.model(*given)
            self.draws = self.draws or not _same_state(before, _random_state(self.device))
            mutates = not all(
                same_bytes(a, b) for a, b in zip(tensors_of(given), tensors_of(inputs), strict=True)
            )
        return Expected(output, self._run_precisely(inputs, forward_seed), mutates)

    def _run_precisely(self, inputs: list[Any], forward_seed: int) -> Any:
        if self._precise is None:
            return None
        try:
            with torch.no_grad():
                seed_all(forward_seed, self.device)
                return self._precise(*[_widen(value) for value in inputs])
        except Exception:
            self._precise = None  # mixes types; from now on the fixed tolerances apply
            return None

    def _cast(self, value: Any, device: torch.device) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if any(
            step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True)
        ):
            value = value.contiguous()  # an expanded tensor's elements cannot be written apart
        return value.detach().to(device, self.dtype if value.is_floating_point() else value.dtype)


def place(model: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Move a model, and tensors that are plain attributes of its modules, to a device and type.

    Plain attributes are moved only, except that those in fp32 follow to fp64.
    """
    model.to(device=device, dtype=dtype)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if type(value) is torch.Tensor:
                wider = dtype == torch.float64 and value.is_floating_point()
                setattr(module, name, value.to(device, dtype if wider else value.dtype))
    return model


def seed_all(seed: int, device: torch.device | None = None) -> None:
    """Seed the CPU's generator and Python's, and the device's own."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if device is not None and device.type == "cuda":
        _generator(device).manual_seed(seed)


def allow_tf32(policy: str) -> None:
    """Set whether this process' fp32 work on CUDA may use TF32: ``off``, or torch's defaults."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = policy == "torch"


def _generator(device: torch.device) -> torch.Generator:
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


def _random_state(device: torch.device) -> list[torch.Tensor]:
    states = [torch.default_generator.get_state()]
    if device.type == "cuda":
        states.append(_generator(device).get_state())
    return states


def _same_state(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_of(item)]
    return []


def _widen(value: Any) -> Any:
    """Return a copy of an input with floating-point tensors in fp64."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return copy.deepcopy(value)


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare two tensors bit for bit, so that NaNs equal themselves."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.contiguous(), b.contiguous()
    return bool(torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)))


@lru_cache(maxsize=64)
def _code(source: str, name: str) -> Any:
    return compile(source, f"<{name}>", "exec")


def _namespace(source: str, name: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "problem"}
    exec(_code(source, name), names)
    return names


class _our_fault:
    """Turn whatever the problem's own code raises into a `JudgeError`."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, JudgeError):
            raise JudgeError(
                f"the reference could not {self._doing}: {type(error).__name__}: {error}"
            ) from error
