"""Where one candidate's calls lie: slots in memory that both sides map, laid out and given back."""

from __future__ import annotations

from typing import Any

import torch

from kernelgym.judge.arena import Arena, Region, new_arena
from kernelgym.judge.construction import Construction
from kernelgym.judge.device_outputs import DeviceOutputs
from kernelgym.judge.lease import Lease
from kernelgym.judge.process import Candidate
from kernelgym.judge.reference import tensors_of
from kernelgym.judge.slots import Slot, alike, encode_all
from kernelgym.judge.structure import outline
from kernelgym.rulesets import Ruleset

__all__ = ["Layout"]

_SPARED_IN_COMPANY, _SPARED_ALONE = 1, 4


class Layout(Construction):
    """Lays out the inputs and outputs of one candidate's calls.

    Args:
        candidate: A fresh process.
        ruleset: The rules.
        build: Builds extensions for it; None where it may ask for none.
        device: Where its tensors lie.
        lease: What its worker may hold while it works; None where nobody else needs it.
    """

    def __init__(
        self,
        candidate: Candidate,
        ruleset: Ruleset,
        build: Any,
        device: torch.device,
        lease: Lease | None = None,
    ) -> None:
        super().__init__(candidate, ruleset, build, lease)
        self.device = device
        self._arena: Arena | None = None
        self._slots: list[Slot] = []
        self._located = DeviceOutputs(device) if device.type == "cuda" else None
        self.example: tuple[list[Any], Any] = ([], ())
        """Inputs and reference output of the last judged call: their shapes, without values."""
        self.alone = False
        """Whether no other worker uses the device's memory meanwhile."""

    def end(self) -> None:
        """Kill the candidate's process, and give its buffers back."""
        self._candidate.kill()
        self.close()

    def reserve(self, inputs: list[Any], output: Any, count: int, timed: bool = False) -> None:
        """Lay out `count` slots for calls with such inputs and outputs, in one new arena.

        Timed calls on a device need no room for outputs: those are read where they are.
        """
        self.example = (outline(inputs), outline(output))
        outputs = [] if timed and self._located is not None else tensors_of(output)
        tensors = tensors_of(inputs)
        size = sum(t.untyped_storage().nbytes() for t in tensors)
        size += sum(t.numel() * t.element_size() for t in outputs)
        self.vacate()
        room = count * (len(tensors) + len(outputs))
        arena = self._arena = new_arena(room, count * size, self.device)
        self._slots, calls = [], []
        for _ in range(count):
            regions: list[Region] = []

            def place(tensor: torch.Tensor, regions: list[Region] = regions) -> Region:
                regions.append(arena.place(tensor))
                return regions[-1]

            arguments = encode_all(inputs, place)
            places = [arena.place(t, contiguous=True) for t in outputs]
            calls.append({"args": arguments, "outputs": [r.to_json() for r in places]})
            self._slots.append(
                Slot(
                    tuple(arena.view(r) for r in regions),
                    tuple(arena.view(r) for r in places),
                    tuple(places),
                )
            )
        self._share(arena)
        self._post({"op": "prepare", "calls": calls})
        self._answer("prepare")

    def vacate(self) -> None:
        """Have the candidate let go of its buffers, and give them back."""
        if self._arena is not None and self._located is not None:
            self._post({"op": "release"})
            self._answer("prepare")
            self._located.forget()
        self.close()

    def close(self) -> None:
        """Give the buffers back; on a device only once the candidate is gone or has let go."""
        self._slots = []
        if self._located is not None:
            self._located.forget()
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def alike(self, inputs: list[Any]) -> bool:
        """Say whether such inputs have the types, shapes and strides of the last judged call's."""
        return alike(tensors_of(inputs), tuple(tensors_of(self.example[0])))

    def _holds(self, inputs: list[Any]) -> bool:
        return bool(self._slots) and alike(tensors_of(inputs), self._slots[0].inputs)

    def _fits(self, inputs: list[Any], output: Any) -> bool:
        # A number may change from call to call, so it is encoded anew.
        only_tensors = all(isinstance(value, torch.Tensor) for value in inputs)
        return (
            only_tensors
            and self._holds(inputs)
            and alike(tensors_of(output), self._slots[0].outputs)
        )

    def _fill(self, batches: list[list[Any]], poison: bool) -> None:
        for slot, inputs in zip(self._slots, batches, strict=False):
            for view, tensor in zip(slot.inputs, tensors_of(inputs), strict=True):
                view.copy_(tensor)
            if poison and self._arena is not None:
                for region in slot.regions:
                    self._arena.poison(region)

    def _make_room(self, inputs: list[Any]) -> None:
        """Give back device memory that torch keeps on this side, where the kernel may need it.

        In company that is done late: it takes long, and a kernel that runs out of memory is judged
        again, alone.
        """
        if self._located is not None:
            size = sum(tensor.nbytes for tensor in tensors_of([inputs, self.example[1]]))
            free, _ = torch.cuda.mem_get_info(self.device)
            if free < (_SPARED_ALONE if self.alone else _SPARED_IN_COMPANY) * size:
                torch.cuda.empty_cache()

    def _flush_cache(self) -> None:
        """Push what was just written to the slots out of the device's cache."""
        if self._located is not None:
            self._located.flush_cache()

    def _finish(self) -> None:
        if self._located is not None:
            torch.cuda.synchronize(self.device)
