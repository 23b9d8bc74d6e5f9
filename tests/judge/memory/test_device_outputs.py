"""What a candidate says of its outputs on a device: refused, or read within its allocation."""

import ctypes
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.errors import DeviceFull
from kernelgym.judge.memory import device_outputs
from kernelgym.judge.memory.device_outputs import DeviceOutputs, Unreadable
from kernelgym.judge.untrusted import cuda_ipc

CPU = torch.device("cpu")
SIZE = 512
BYTES = (ctypes.c_ubyte * SIZE)(*(7 * n % 251 for n in range(SIZE)))
ADDRESS = ctypes.addressof(BYTES)
HANDLE = "ab" * 64
NO_MEMORY = (ADDRESS, 0)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


class Opened(Exception):
    """Memory was asked for."""


@pytest.fixture
def closed(monkeypatch):
    """Any look at memory is an `Opened`."""

    def refuse(*_):
        raise Opened

    for name in ("open_shared", "extent", "view"):
        monkeypatch.setattr(cuda_ipc, name, refuse)


def _stand_in(patch):
    """Stand in for the driver with one allocation, `BYTES`; return what is closed, as it is."""

    def open_shared(handle):
        if bytes.fromhex(handle) != bytes.fromhex(HANDLE):
            raise cuda_ipc.DriverError("opening shared device memory: CUDA error 1")
        return ADDRESS

    def view(address, size, device):
        assert address >= ADDRESS and address + size <= ADDRESS + SIZE, "reads past the allocation"
        return torch.frombuffer(BYTES, dtype=torch.uint8, count=size, offset=address - ADDRESS)

    closings = []
    patch.setattr(cuda_ipc, "open_shared", open_shared)
    patch.setattr(cuda_ipc, "extent", lambda address: (ADDRESS, SIZE))
    patch.setattr(cuda_ipc, "view", view)
    patch.setattr(cuda_ipc, "close_shared", closings.append)
    return closings


@pytest.fixture
def shared(monkeypatch):
    return _stand_in(monkeypatch)


def _place(**changes):
    return {"memory": HANDLE, "offset": 0, "strides": [3, 1], **changes}


def _tensor(dtype="float32", shape=(2, 3), **changes):
    return {"tensor": [dtype, list(shape), _place(**changes)]}


def _read(description, arena=NO_MEMORY):
    return DeviceOutputs(CPU).copy(description, _expected(description), arena)


def _expected(description):
    """Tensors of the types and shapes that a description claims, as far as it can be read."""
    found = []
    try:
        claims = device_outputs._claimed_tensors(description)
    except RecursionError:
        return []
    for said in claims:
        try:
            place = device_outputs._place(said)
        except Unreadable:
            return []
        found.append(torch.empty(place.shape, dtype=place.dtype, device="meta"))
    return found


@settings(max_examples=300)
@given(
    st.sampled_from(["tensor", "sequence", "mapping", "other"]),
    json_values | st.lists(json_values, min_size=3, max_size=3),
)
def test_no_json_value_is_taken_for_a_place_in_memory(kind, body):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_ipc, "open_shared", lambda _: pytest.fail("memory was opened"))
        try:
            found = _read({kind: body})
        except Unreadable:
            return
    assert kind != "tensor" and all(tensor.numel() == 0 for tensor in found)


def _deep(kind, depth):
    description = _tensor("float31")
    for _ in range(depth):
        description = {kind: [description] if kind == "sequence" else [["key", description]]}
    return description


BAD_PLACES = {
    "no tensor's description": {"tensor": 3},
    "two fields": {"tensor": ["float32", [2]]},
    "no place": {"tensor": ["float32", [2], None]},
    "a list for a type": _tensor(["float32"]),
    "a function for a type": _tensor("zeros"),
    "a quantised type": _tensor("quint8"),
    "a type below a byte": _tensor("uint4"),
    "a surrogate for a type": _tensor("\ud800"),
    "a list for a handle": _tensor(memory=[HANDLE]),
    "an object for a handle": _tensor(memory={"a": HANDLE}),
    "a number for a handle": _tensor(memory=1),
    "nothing for a handle": _tensor(memory=None),
    "false for a handle": _tensor(memory=False),
    "text for a shape": {"tensor": ["float32", "", _place(strides="")]},
    "an object for a shape": {"tensor": ["float32", {}, _place(strides={})]},
    "true for a size": _tensor(shape=[True, 3]),
    "a fraction for a size": _tensor(shape=[2.0, 3]),
    "a negative size": _tensor(shape=[-1, 3]),
    "a negative stride": _tensor(strides=[-3, 1]),
    "a negative offset": _tensor(offset=-4),
    "a fraction for an offset": _tensor(offset=0.5),
    "a vast size": _tensor(shape=[1 << 64, 3]),
    "a vast empty shape": _tensor(shape=[0, 1 << 47, 1 << 47], strides=[1, 1, 1]),
    "fewer strides than sizes": _tensor(strides=[1]),
    "more dimensions than torch has": _tensor(shape=[1] * 65, strides=[1] * 65),
    "the second of two": {"sequence": [_tensor(shape=[0, 3]), _tensor("zeros")]},
    "a deep sequence": _deep("sequence", 2000),
    "a deep mapping": _deep("mapping", 2000),
}


@pytest.mark.parametrize("case", BAD_PLACES)
def test_what_cannot_be_a_place_is_refused_before_memory_is_opened(case, closed):
    with pytest.raises(Unreadable, match="no readable place"):
        _read(BAD_PLACES[case])


def test_the_stand_in_for_memory_would_have_been_seen(closed):
    with pytest.raises(Opened):
        _read(_tensor())


def test_an_empty_output_needs_no_memory(closed):
    nowhere = {"offset": 0, "strides": [3, 1]}  # what a candidate says of it
    for place in (nowhere, _place()):
        (found,) = _read({"tensor": ["bfloat16", [0, 3], place]})
        assert found.shape == (0, 3) and found.dtype == torch.bfloat16


@given(st.data())
def test_a_place_is_read_exactly_or_refused(data):
    dtype = data.draw(st.sampled_from(["float32", "uint8", "int64", "bfloat16", "bool"]))
    shape = data.draw(st.lists(st.integers(1, 6), max_size=3))
    strides = data.draw(st.lists(st.integers(0, 40), min_size=len(shape), max_size=len(shape)))
    offset = data.draw(st.integers(0, SIZE + 8))
    itemsize = getattr(torch, dtype).itemsize
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    fits = offset + (last + 1) * itemsize <= SIZE
    with pytest.MonkeyPatch.context() as patch:
        _stand_in(patch)
        try:
            (found,) = _read(_tensor(dtype, shape, strides=strides, offset=offset))
        except Unreadable:
            assert not fits or offset % itemsize or math.prod(shape) > last + 1
            return
    assert fits and offset % itemsize == 0
    assert list(found.shape) == shape and found.dtype == getattr(torch, dtype)
    raw = bytes(BYTES)
    flat = torch.frombuffer(bytearray(raw[offset:]), dtype=torch.uint8)
    cells = flat[: (last + 1) * itemsize].view(-1, itemsize)
    index = torch.zeros(shape, dtype=torch.int64)
    for axis, step in enumerate(strides):
        along = [1] * len(shape)
        along[axis] = -1
        index = index + step * torch.arange(shape[axis]).view(along)
    wanted = cells[index.reshape(-1)].flatten()
    if dtype == "bool":
        assert torch.equal(found.view(torch.uint8).flatten(), wanted)
    else:
        assert torch.equal(
            torch.empty(found.numel(), dtype=found.dtype).copy_(found.flatten()).view(torch.uint8),
            wanted,
        )


def test_what_is_read_is_a_copy(shared):
    (found,) = _read(_tensor("uint8"))
    before = BYTES[0]
    BYTES[0] ^= 255
    assert found[0, 0].item() == before
    BYTES[0] = before


def test_an_output_in_the_shared_memory_may_not_reach_past_it(closed, monkeypatch):
    with pytest.raises(Unreadable, match="past the memory"):
        _read(_tensor(memory=""), (ADDRESS, 23))
    view = torch.frombuffer(BYTES, dtype=torch.uint8, count=24)
    monkeypatch.setattr(cuda_ipc, "view", lambda *_: view)
    (found,) = _read(_tensor(memory=""), (ADDRESS, 24))
    assert found.shape == (2, 3)


@pytest.mark.parametrize("handle", ["zz", "ab", "cd" * 64, "\udc00", "é"])
def test_a_handle_of_no_memory_is_refused(handle, shared):
    with pytest.raises(Unreadable, match="cannot be opened"):
        _read(_tensor(memory=handle))


def test_an_allocation_is_opened_once_and_closed(shared):
    outputs = DeviceOutputs(CPU)
    for _ in range(3):
        said = {"mapping": [["a", _tensor()], ["b", _tensor(offset=8)]]}
        outputs.copy(said, _expected(said), NO_MEMORY)
    assert shared == []
    outputs.forget()
    outputs.forget()
    assert shared == [ADDRESS]


@pytest.mark.parametrize(
    "other", [torch.empty(2, 4), torch.empty(3, 2), torch.empty(2, 3, dtype=torch.float64)]
)
def test_an_output_of_another_type_or_shape_is_refused_before_memory_is_opened(other, closed):
    with pytest.raises(Unreadable, match="an output is now a"):
        DeviceOutputs(CPU).copy(_tensor(), [other], NO_MEMORY)
    with pytest.raises(Unreadable, match="1 tensors instead of 2"):
        DeviceOutputs(CPU).copy(_tensor(), [other, other], NO_MEMORY)


def test_memory_of_another_process_is_refused(closed):
    outputs = DeviceOutputs(CPU)
    outputs.refused = {HANDLE: (0, 1)}
    with pytest.raises(Unreadable, match="another process"):
        outputs.copy(_tensor(), _expected(_tensor()), NO_MEMORY)


def test_that_there_is_no_room_for_a_copy_is_no_unreadable_output(shared, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 90.00 GiB")

    monkeypatch.setattr(torch.Tensor, "clone", full)
    with pytest.raises(DeviceFull, match="Tried to allocate 90"):
        _read(_tensor())
