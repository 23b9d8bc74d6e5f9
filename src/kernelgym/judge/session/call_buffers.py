"""Buffers of one candidate's calls: slots in memory that both processes map.

Contract: a slot holds one call's inputs. It holds the call's outputs, too, on the CPU, and on a
device while calls are judged. The worker owns the memory, writes inputs to it, reads outputs from
it and frees it.

Not covered:
- the calls themselves: `kernelgym.judge.session.session`;
- allocating and sharing memory: `kernelgym.judge.memory`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch

from kernelgym.judge.compare.structure import outline
from kernelgym.judge.device.l2_cache import L2Cache
from kernelgym.judge.memory.arena import Arena, ArenaRegion, new_arena
from kernelgym.judge.memory.device_outputs import DeviceOutputs, Unreadable
from kernelgym.judge.memory.slots import CallSlot, alike, encode_all
from kernelgym.judge.session.channel import Channel, Rejected
from kernelgym.judge.tensors import tensors_of
from kernelgym.judge.untrusted.outputs import export
from kernelgym.types import Status

_INPUTS = 0  # number of the arena that holds inputs; on the CPU it holds outputs, too
_OUTPUTS = 1
_SPARED_SHARED, _SPARED_ALONE = 1, 4
_LITTLE_OF = 16
_STAYS_OF = 16
_COPIES = 4


class CallBuffers:
    """Lays out the inputs and outputs of one candidate's calls.

    Args:
        channel: The channel to the candidate.
        device: Where the candidate's tensors lie.
    """

    def __init__(self, channel: Channel, device: torch.device) -> None:
        self._channel, self._device = channel, device
        self._arenas: dict[int, Arena] = {}
        self.slots: list[CallSlot] = []
        """Slots of the calls that are laid out, one for each call."""
        self._moving = False
        self._old: Arena | None = None  # earlier inputs; freed once the next ones lie elsewhere
        self.captured: list[Any] | None = None
        """The candidate's descriptions of outputs, from when it captured these calls."""
        on_cuda = device.type == "cuda"
        self._located = DeviceOutputs(device) if on_cuda else None
        self._l2_cache = L2Cache(device) if on_cuda else None
        self.example: tuple[list[Any], Any] = ([], ())
        """Shapes of the last judged call's inputs and reference output, without values."""
        self.alone = False
        """Whether no other worker uses the device's memory at this time."""

    @property
    def on_device(self) -> bool:
        """Whether timed outputs are read where the candidate left them."""
        return self._located is not None

    def distrust(self, others: Iterable[CallBuffers]) -> None:
        """Refuse outputs that lie in memory that other candidates have shared."""
        if self._located is not None:
            located = (other._located for other in others)
            self._located.refused = [each.opened for each in located if each is not None]

    def reserve(self, inputs: list[Any], output: Any, count: int, timed: bool = False) -> None:
        """Lay out `count` slots for calls with such inputs and outputs.

        Timed calls on a device need no room for outputs: the worker reads them where they lie. The
        driver is slow to allocate and free large memory, so an arena of the right size is used
        again, and an arena that is not needed any more may stay: it holds nothing but this
        candidate's own values.
        """
        self.example = (outline(inputs), outline(output))
        in_place = timed and self._located is not None
        outputs = [] if in_place else tensors_of(output)
        tensors = tensors_of(inputs)
        size = sum(t.untyped_storage().nbytes() for t in tensors)
        of_outputs = sum(t.numel() * t.element_size() for t in outputs)
        apart = self._located is not None and bool(outputs)
        room = {_INPUTS: (count * len(tensors), count * size)}
        if apart:
            room[_OUTPUTS] = (count * len(outputs), count * of_outputs)
        else:
            both = len(tensors) + len(outputs)
            room[_INPUTS] = (count * both, count * (size + of_outputs))
        self._lay(room)
        arena, beside = self._arenas[_INPUTS], self._arenas[_OUTPUTS if apart else _INPUTS]
        self.slots, calls = [], []
        for _ in range(count):
            regions: list[ArenaRegion] = []

            def place(tensor: torch.Tensor, regions: list[ArenaRegion] = regions) -> ArenaRegion:
                regions.append(arena.place(tensor))
                return regions[-1]

            arguments = encode_all(inputs, place)
            places = [beside.place(t, contiguous=True) for t in outputs]
            described = None if in_place else [region.to_json() for region in places]
            calls.append({"args": arguments, "outputs": described})
            self.slots.append(
                CallSlot(
                    tuple(arena.view(r) for r in regions),
                    tuple(beside.view(r) for r in places),
                    tuple(places),
                )
            )
        self._prepare(calls)

    def _prepare(self, calls: list[dict[str, Any]]) -> None:
        self.captured = None
        self._channel.post({"op": "prepare", "calls": calls})
        self._channel.answer("prepare")

    def _lay(self, room: dict[int, tuple[int, int]]) -> None:
        """Make arenas with room for (number of tensors, bytes), by arena number.

        Inputs that must move get their new arena before the old one is freed, so that the two
        addresses differ. If all arenas exist already, small ones that are not needed may stay: the
        driver serves one request at a time for all processes of a host, so needless frees would
        delay them all.
        """
        arenas = self._arenas
        if self._moving:
            self._begin_to_move()
        outworn = [n for n, arena in arenas.items() if n in room and not arena.fits(*room[n])]
        spare = [number for number in arenas if number not in room]
        if not outworn and room.keys() <= arenas.keys():
            spare = [number for number in spare if not self._may_stay(arenas[number])]
        self._leave([*outworn, *spare])
        for number, (tensors, size) in room.items():
            if number in arenas:
                arenas[number].clear()
                continue
            arenas[number] = new_arena(tensors, size, self._device, number)
            self._channel.share(arenas[number])
        if self._old is not None:
            self._old.close()
            self._old = None

    def _begin_to_move(self) -> None:
        """Set the inputs' arena aside until the next exists, or free it.

        On a device it is freed at once if it is large, or if the kernel is judged alone: two may
        not fit.
        """
        self._moving, old = False, self._arenas.get(_INPUTS)
        if old is not None and self._device.type == "cuda" and not self._may_stay(old):
            self._leave([_INPUTS])
        else:
            self._old = self._arenas.pop(_INPUTS, None)

    def move(self) -> None:
        """Have the next call's inputs lie at a new address.

        A kernel that has kept the address of earlier inputs, by whatever means, then reads old
        values. Not covered: very large inputs on a device may get an address used before.
        """
        self.slots, self._moving = [], True

    def _may_stay(self, arena: Arena) -> bool:
        if self.alone or self._device.type != "cuda":
            return False
        total = int(torch.cuda.get_device_properties(self._device).total_memory)
        return arena.bytes <= total // _STAYS_OF

    def _leave(self, numbers: list[int]) -> None:
        """Have the candidate unmap arenas, and free them."""
        self.slots, self.captured = [], None
        if numbers and self._located is not None:
            self._channel.post({"op": "release", "arenas": numbers})
            self._channel.answer("prepare")
            self._located.forget()
        for number in numbers:
            self._arenas.pop(number).close()

    def vacate(self) -> None:
        """Have the candidate unmap its buffers, and free them."""
        self._leave([*self._arenas])

    def close(self) -> None:
        """Free the buffers.

        On a device, call this only after the candidate has ended or unmapped them.
        """
        self.slots = []
        if self._located is not None:
            self._located.forget()
        for arena in (*self._arenas.values(), *filter(None, [self._old])):
            arena.close()
        self._arenas.clear()
        self._old = None

    def alike(self, inputs: list[Any]) -> bool:
        """Return True if inputs are laid out like the last judged call's."""
        return alike(tensors_of(inputs), tuple(tensors_of(self.example[0])))

    def _holds(self, inputs: list[Any]) -> bool:
        return bool(self.slots) and alike(tensors_of(inputs), self.slots[0].inputs)

    def fits(self, inputs: list[Any], output: Any) -> bool:
        """Return True if such a call can use the first slot unchanged."""
        # A number may change from call to call, so a call with numbers must be laid out again.
        only_tensors = all(isinstance(value, torch.Tensor) for value in inputs)
        return (
            only_tensors
            and self._holds(inputs)
            and alike(tensors_of(output), self.slots[0].outputs)
        )

    def fill(self, batches: list[list[Any]], poison: bool) -> None:
        """Copy inputs to the slots.

        Args:
            batches: Inputs of the calls, one list for each slot.
            poison: Whether to overwrite earlier outputs with values that cannot be right, so that a
                kernel that writes nothing fails.
        """
        for slot, inputs in zip(self.slots, batches, strict=False):
            for view, tensor in zip(slot.inputs, tensors_of(inputs), strict=True):
                view.copy_(tensor)
            if poison:
                for region in slot.regions:
                    self._arenas[region.arena].poison(region)

    def copy_ms(self) -> float:
        """Return the milliseconds in which the worker copies one call's outputs to their slots.

        It is the lower quartile over several copies to every slot. Call this only while the
        candidate is halted and before inputs are written: the slots' outputs are overwritten.
        """
        took_ms = []
        for slot in self.slots * _COPIES:
            outputs = [torch.zeros_like(place) for place in slot.outputs]
            begun = time.perf_counter()
            export(outputs[0] if len(outputs) == 1 else outputs, list(slot.outputs))
            took_ms.append((time.perf_counter() - begun) * 1e3)
        # The first copy to each slot maps its pages.
        return sorted(took_ms[len(self.slots) :])[(_COPIES - 1) * len(self.slots) // 4]

    def make_room(self, inputs: list[Any]) -> None:
        """Free the worker's cached device memory if the kernel may need it.

        While other workers share the device, this waits until less memory is free, because freeing
        takes long; a kernel that runs out of memory is judged again, alone on the device.
        """
        if self._located is not None:
            size = sum(tensor.nbytes for tensor in tensors_of([inputs, self.example[1]]))
            kept = torch.cuda.memory_reserved(self._device)
            kept -= torch.cuda.memory_allocated(self._device)
            if kept < size // _LITTLE_OF:
                return  # asking the driver takes milliseconds while other processes ask it, too
            free, _ = torch.cuda.mem_get_info(self._device)
            if free < (_SPARED_ALONE if self.alone else _SPARED_SHARED) * size:
                torch.cuda.empty_cache()

    def flush_cache(self) -> None:
        """Flush the device's L2 cache: no call shall find inputs there."""
        if self._l2_cache is not None:
            self._l2_cache.flush()

    def finish(self) -> None:
        """Wait until the device has done all work of the worker's process."""
        if self._located is not None:
            torch.cuda.synchronize(self._device)

    def read(self, description: Any) -> list[torch.Tensor]:
        """Return copies of one call's outputs from where the candidate left them.

        Args:
            description: The candidate's description of the outputs.

        Raises:
            Rejected: If the outputs cannot be read there.
        """
        assert self._located is not None
        try:
            expected = tensors_of(self.example[1])
            return self._located.copy(description, expected, self._arenas[_INPUTS].span())
        except Unreadable as reason:
            raise Rejected(Status.RUNTIME_ERROR, str(reason)) from None
