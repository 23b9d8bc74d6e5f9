"""Runs a model and its fp64 twin on the same inputs, on one device.

Where whole fp64 runs would take too much of a device's memory, the twin runs on some blocks of
rows, if the model computes each row from the same row of its inputs. The runner checks this by
running the model itself on the blocks.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernelgym.errors import DeviceFull, JudgeError
from kernelgym.judge.compare.compare import Calibration, RowBlocks, Sensitivity
from kernelgym.judge.inputs.seeds import random_state, seed_all
from kernelgym.judge.out_of_memory import available_bytes, lacked_memory
from kernelgym.judge.reference.fixed_state import put_state
from kernelgym.judge.reference.widened import Widened
from kernelgym.judge.tensors import bytes_of, plain_output, same_bytes, tensors_of
from kernelgym.judging_memory import device_bytes
from kernelgym.rulesets import Precision

_USABLE = 0.9  # of a device's memory, by one worker alone
_LARGE_SHARE = 16  # inputs and outputs above 1/16 of the device's memory are large
_COPIED_BYTES = 256 << 20  # inputs up to this size are copied before each run
_BLOCKS = 4
_BLOCK_BYTES = 64 << 20
STEADY_BYTES = 1 << 30
"""Inputs up to this size are changed in their last places; more would take too long."""
_NEARBY_RUNS = 4
_JITTER = 2.0**-21  # four units in the last place of fp32, which kernels compute in
_JITTER_OF_FP64 = 2.0**-50
_ODD = 0x1E3779B97F4A7C15  # any odd number whose bits look random
_AGREEMENT = 1e-3  # between a block's rows and the same rows of the whole


class InputsChanged(JudgeError):
    """Raised if a model changed large inputs before they were copied.

    Later runs copy even large inputs first.
    """


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """Output of the reference for one set of inputs."""

    output: Any
    """Tensor, or nested tuples, lists and dicts of tensors and numbers."""
    precise: Any
    """Output computed in fp64, or some `RowBlocks` of it; None if that is impossible."""
    mutates_inputs: bool
    new: tuple[bool, ...] = ()
    """Whether each of the output's tensors lies in memory that neither the inputs nor the model
    hold."""
    kind: str = "given"
    """The kind of inputs (see `kernelgym.judge.inputs.kinds`)."""
    calibration: Calibration | None = None
    """The problem's calibration; None for that of an unknown operation."""
    precision: Precision = "fp32"
    """Lowest precision of the problem, or the precision that its tensors were cast to."""
    sensitivity: Sensitivity | None = None
    """Returns how much the output changes with the inputs' last places; None if unknown."""


class ReferenceRunner:
    """A model and its fp64 twin.

    Args:
        model: The model, on the device already.
        device: The device.
        twin: Whether to make an fp64 twin.
        raise_on_oom: Whether to raise when the twin lacks memory; if not, the runner gives the
            twin up.
    """

    def __init__(
        self, model: Any, device: torch.device, twin: bool, raise_on_oom: bool = False
    ) -> None:
        self.model, self.device, self.raise_on_oom = model, device, raise_on_oom
        self.draws = False
        """Whether any run so far consumed random numbers."""
        self.too_large = False
        """Whether a twin was requested that did not fit in memory, even in blocks of rows."""
        self.stateful = any(True for _ in model.buffers())
        self._wanted = twin
        self._widens = True  # whether types that the model names are replaced in the twin
        self._precise = self._twin() if twin else None
        self.copies_inputs = False
        """Whether even large inputs are copied before a run, since the model changes them."""
        self._leaves_inputs = False  # whether a run without copies left its inputs unchanged

    def put_state(self, values: Mapping[str, torch.Tensor]) -> None:
        """Copy values into the model's state and its twin's, by name and in place."""
        put_state(self.model, values)
        if self._precise is not None:
            put_state(self._precise, values)

    def renew_twin(self) -> None:
        """Make the twin again, after the model's weights have been changed."""
        self._precise = self._twin() if self._wanted else None

    def _twin(self) -> Any:
        try:
            return place(copy.deepcopy(self.model), self.device, torch.float64)
        except Exception as error:
            if lacked_memory(error):
                if self.raise_on_oom:
                    raise
                self.too_large = True
            return None  # some modules cannot be copied; the fixed tolerances apply then

    def expect(self, inputs: list[Any], seed: int) -> ExpectedOutput:
        """Run the reference model, and its fp64 copy if there is one, on unchanged `inputs`.

        Raises:
            InputsChanged: If the model changed large inputs on its first run. The runner has then
                restored the model's buffers: draw the same inputs again and call this again.
            JudgeError: If the model did so on a later run, where its buffers were not saved.
        """
        with torch.no_grad():
            output, mutates, new = self._run(inputs, seed)
            return ExpectedOutput(output, self._run_precisely(inputs, output, seed), mutates, new)

    def run_aside(self, inputs: list[Any], seed: int) -> Any:
        """Return the model's output on `inputs`; its buffers and the inputs stay unchanged."""
        with torch.no_grad():
            kept = [buffer.clone() for buffer in self.model.buffers()]
            output, _, _ = self._run(inputs, seed)
            for buffer, value in zip(self.model.buffers(), kept, strict=True):
                buffer.copy_(value)
            return output

    def _run(self, inputs: list[Any], seed: int) -> tuple[Any, bool, tuple[bool, ...]]:
        copied = self.copies_inputs or bytes_of(inputs) <= _COPIED_BYTES
        given = copy.deepcopy(inputs) if copied else inputs
        versions = [tensor._version for tensor in tensors_of(inputs)]
        first = not (copied or self._leaves_inputs)
        state = [buffer.clone() for buffer in self.model.buffers()] if first else []
        seed_all(seed, self.device)
        before = random_state(self.device)
        output = plain_output(self.model(*given))
        held = tensors_of([given, *map(vars, self.model.modules())])
        new = _lie_apart(tensors_of(output), held)
        self.draws = self.draws or before != random_state(self.device)
        if copied:
            pairs = zip(tensors_of(given), tensors_of(inputs), strict=True)
            return output, not all(same_bytes(a, b) for a, b in pairs), new
        if versions != [tensor._version for tensor in tensors_of(inputs)]:
            if not first:
                raise JudgeError("the reference changed inputs that it had left alone before")
            self.copies_inputs = True
            for buffer, value in zip(self.model.buffers(), state, strict=True):
                buffer.copy_(value)
            raise InputsChanged("the reference changed its inputs before they were copied")
        self._leaves_inputs = True
        return output, False, new

    def _run_precisely(self, inputs: list[Any], output: Any, seed: int) -> Any:
        if self._precise is None:
            return None
        try:
            if not self._is_large(inputs, output):
                return self.run_twin(inputs, seed)
        except Exception as error:
            if not lacked_memory(error):
                # The model mixes types and cannot run in fp64: the fixed tolerances apply.
                self._precise = None
                return None
            torch.cuda.empty_cache()
        try:
            found = self._run_blocks(inputs, output, seed)
            if found is not None:
                return found
            if self._may_fit(inputs, output):
                return self.run_twin(inputs, seed)
        except Exception as error:
            if lacked_memory(error):
                if self.raise_on_oom:
                    raise
                torch.cuda.empty_cache()
        self.too_large, self._precise = True, None
        return None

    def run_twin(self, inputs: list[Any], seed: int, aside: bool = False) -> Any:
        """Return the twin's output on `inputs`; None if there is no twin.

        Args:
            inputs: The inputs; copies of them are widened to fp64.
            seed: Seed set before the run.
            aside: Whether to restore the twin's buffers after this run.

        Raises:
            Exception: Whatever the twin raises.
        """
        model = self._precise
        if model is None:
            return None
        kept = [buffer.clone() for buffer in model.buffers()] if aside else []
        try:
            output = self._call(model, inputs, seed)
        except Exception as error:
            if lacked_memory(error) or not self._widens:
                raise
            self._widens = False  # some models do not run under a torch function mode
            output = self._call(model, inputs, seed)
        for buffer, value in zip(model.buffers() if aside else (), kept, strict=True):
            buffer.copy_(value)
        return output

    def run_nearby(
        self,
        inputs: list[Any],
        seed: int,
        precision: Precision,
        draw: int = 0,
        unmoved: Collection[int] = (),
    ) -> Any:
        """Return the twin's output on inputs that differ in their last places.

        Args:
            inputs: The inputs.
            seed: Seed set before the run.
            precision: The problem's precision: changes are as large as the roundings of honest
                kernels, which compute in fp32 unless the problem is in fp64.
            draw: Chooses the changes.
            unmoved: Numbers of inputs that do not change.
        """
        jitter = _JITTER_OF_FP64 if precision == "fp64" else _JITTER
        with torch.no_grad():
            moved = [
                value.double() * (1 + jitter * _chosen_by_value(value, draw))
                if _is_floating(value) and number not in unmoved
                else value.double()
                if _is_floating(value)
                else value
                for number, value in enumerate(inputs)
            ]
            return self.run_twin(moved, seed, aside=True)

    def sensitivity(
        self, inputs: list[Any], precise: Any, seed: int, precision: Precision
    ) -> list[torch.Tensor] | None:
        """Return the root mean square change of each element of the output, as `Sensitivity` does.

        None if the twin cannot be run again, or gives complex numbers.

        Args:
            inputs: The inputs.
            precise: The twin's output on them.
            seed: Seed set before each run.
            precision: The problem's precision.
        """
        truths = tensors_of(precise)
        if any(truth.is_complex() for truth in truths):
            return None
        squares = [torch.zeros_like(truth, dtype=torch.float64) for truth in truths]
        try:
            for draw in range(_NEARBY_RUNS):
                found = tensors_of(self.run_nearby(inputs, seed, precision, draw))
                for total, near, truth in zip(squares, found, truths, strict=True):
                    total += (near - truth).double().nan_to_num_(0.0, 0.0, 0.0).square_()
        except Exception as error:  # a second look is not worth a verdict
            if lacked_memory(error):
                torch.cuda.empty_cache()
            return None
        return [total.div_(_NEARBY_RUNS).sqrt_().reshape(-1) for total in squares]

    def _call(self, model: Any, inputs: list[Any], seed: int) -> Any:
        seed_all(seed, self.device)
        with Widened() if self._widens else contextlib.nullcontext():
            return plain_output(model(*[_widen(value) for value in inputs]))

    def _is_large(self, inputs: list[Any], output: Any) -> bool:
        return bytes_of([inputs, output]) > _total_bytes(self.device) // _LARGE_SHARE

    def _may_fit(self, inputs: list[Any], output: Any) -> bool:
        """Return True if an fp64 run should fit in free memory.

        It takes fp64 copies of all tensors, and as much again.

        Raises:
            DeviceFull: If `raise_on_oom` is set and the run would fit, beside the kernel's own
                tensors, on a device that no other worker uses.
        """
        size = bytes_of([inputs, output])
        needed = 4 * size
        free = _free_bytes(self.device)
        if needed < free:
            return True
        if self.raise_on_oom and needed + 2 * size < _USABLE * _total_bytes(self.device):
            raise DeviceFull(f"an fp64 run takes {needed / 1e9:.1f} GB, {free / 1e9:.1f} are free")
        return False

    def _run_blocks(self, inputs: list[Any], output: Any, seed: int) -> RowBlocks | None:
        """Return the twin's output on blocks of rows, or None.

        None if rows of the output may depend on each other.
        """
        leaves = tensors_of(output)
        heights = {leaf.shape[0] if leaf.dim() else 0 for leaf in leaves}
        if self.stateful or self.draws or len(heights) != 1:
            return None
        (height,) = heights
        rows = _block_rows(height, bytes_of([inputs, output]), seed)
        fitting = [
            index
            for index, value in enumerate(inputs)
            if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == height
        ]
        for cut in (fitting, fitting[:1]):
            if cut and rows and self._treats_rows_apart(inputs, output, rows, cut, seed):
                blocks = tuple(self.run_twin(_cut(inputs, part, cut), seed) for part in rows)
                return RowBlocks(rows, blocks)
        return None

    def _treats_rows_apart(
        self, inputs: list[Any], output: Any, rows: tuple[slice, ...], cut: list[int], seed: int
    ) -> bool:
        for part in rows:
            seed_all(seed, self.device)
            try:
                alone = tensors_of(plain_output(self.model(*_copied(_cut(inputs, part, cut)))))
            except Exception as error:
                if lacked_memory(error):
                    raise
                return False
            whole = [leaf[part] for leaf in tensors_of(output)]
            if len(alone) != len(whole) or not all(map(_agree, alone, whole)):
                return False
        return True


@functools.cache
def _total_bytes(device: torch.device) -> int:
    """Return a device's memory in bytes; kept, since every call of a reference asks."""
    if device.type != "cuda":
        return device_bytes("cpu")
    return int(torch.cuda.get_device_properties(device).total_memory)


def _free_bytes(device: torch.device) -> int:
    """Return the memory of a device that is free, in bytes."""
    if device.type != "cuda":
        return available_bytes()
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free + held)


def _block_rows(height: int, total_bytes: int, seed: int) -> tuple[slice, ...]:
    """Return small random blocks of rows; none if rows are unsuitable.

    There are none if rows are too few or too long.
    """
    size = min(height // 8, _BLOCK_BYTES * height // max(1, total_bytes))
    if size < 1:
        size = 1 if height >= 2 * _BLOCKS else 0
    if not size:
        return ()
    source = torch.Generator().manual_seed(seed)
    starts = torch.randint(height - size + 1, (_BLOCKS,), generator=source).tolist()
    return tuple(slice(start, start + size) for start in sorted(set(starts)))


def _cut(inputs: list[Any], rows: slice, which: list[int]) -> list[Any]:
    return [value[rows] if index in which else value for index, value in enumerate(inputs)]


def _copied(values: list[Any]) -> list[Any]:
    """Return copies of values.

    `copy.deepcopy` of a slice would copy the whole tensor behind it.
    """
    return [v.clone() if isinstance(v, torch.Tensor) else copy.deepcopy(v) for v in values]


def _agree(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return bool(torch.equal(a, b))
    typical = b.double().abs().nan_to_num_(0.0, 0.0, 0.0).mean()
    wide = _AGREEMENT if a.dtype == torch.float32 else 8 * torch.finfo(a.dtype).eps
    return bool(
        torch.isclose(
            a.double(), b.double(), rtol=wide, atol=wide * float(typical), equal_nan=True
        ).all()
    )


def _lie_apart(outputs: list[torch.Tensor], held: list[torch.Tensor]) -> tuple[bool, ...]:
    """Return, for each output, whether it shares memory with none of some other tensors."""
    addresses = {_address(tensor) for tensor in held}
    return tuple(_address(tensor) not in addresses for tensor in outputs)


def _address(tensor: torch.Tensor) -> int:
    """Return the address of the memory that a tensor and its views share; -1 without memory."""
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else -1


def place(model: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    """Move a model and its plain tensor attributes to a device.

    Plain attributes change their type only if the type is fp64 and they are floating-point.

    Args:
        model: The model.
        device: The device.
        dtype: Type of its floating-point parameters and buffers; None leaves theirs.
    """
    model.to(device=device, dtype=dtype)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if type(value) is torch.Tensor:
                wider = dtype == torch.float64 and value.is_floating_point()
                setattr(module, name, value.to(device, dtype if wider else value.dtype))
    return model


def _chosen_by_value(values: torch.Tensor, draw: int) -> torch.Tensor:
    """Return pseudorandom numbers from [-1, 1) that are equal where magnitudes are.

    What is equal, or another's negative, stays so if it is multiplied by them.
    """
    bits = values.double().abs().view(torch.int64) * _ODD
    return bits.mul_(2 * draw + 1).bitwise_right_shift_(40).double().mul_(2.0**-23)


def _widen(value: Any) -> Any:
    """Return a copy of an input; a floating-point tensor in fp64."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return copy.deepcopy(value)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
