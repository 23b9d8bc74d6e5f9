"""Properties of the judge's pure parts: framing, timing, arenas, extension sources."""

import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.judge.compiling.missing_headers import missing_from_thin
from kernelgym.judge.compiling.request import BadRequest, read_request
from kernelgym.judge.compiling.source import compose, units
from kernelgym.judge.inputs.seeds import Seeds
from kernelgym.judge.memory.arena import encode, new_arena
from kernelgym.judge.tensors import same_bytes
from kernelgym.judge.timing import speedup
from kernelgym.judge.untrusted import protocol
from kernelgym.rulesets import RULESETS, TimingProtocol

STRICT, KERNELBENCH = RULESETS["strict"], RULESETS["kernelbench"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=5), st.data())
def test_messages_survive_any_way_of_cutting_the_stream(messages, data):
    stream = b"".join(map(protocol.pack, messages))
    decoder, found = protocol.Decoder(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        decoder.feed(stream[:cut])
        stream = stream[cut:]
        while (message := decoder.next()) is not None:
            found.append(message)
    assert found == messages


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_a_wire_error(data):
    decoder = protocol.Decoder(max_bytes=100)
    decoder.feed(data)
    try:
        while (message := decoder.next()) is not None:
            assert isinstance(message, dict)
    except protocol.ProtocolError:
        pass


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
def test_the_interval_holds_the_sample_median(values):
    low, high = speedup.median_interval(values)
    assert min(values) <= low <= statistics.median(values) <= high <= max(values)


def test_the_interval_covers_the_median_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    for n in (8, 15, 30):
        samples = rng.exponential(size=(4000, n)) - math.log(2)  # median 0
        intervals = [speedup.median_interval(row) for row in samples.tolist()]
        coverage = np.mean([low <= 0 <= high for low, high in intervals])
        assert 0.945 <= coverage <= 0.999, (n, coverage)


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=20),
    st.floats(1.0, 5.0),
)
def test_a_slower_kernel_never_gains(pairs, factor):
    before = speedup.summarise(pairs)
    after = speedup.summarise([(reference, kernel * factor) for reference, kernel in pairs])
    assert after.speedup_low <= before.speedup_low * (1 + 1e-9)
    assert after.speedup == pytest.approx(before.speedup / factor)


def test_measuring_stops_only_when_narrow():
    protocol = TimingProtocol(min_pairs=8, relative_width=0.05)
    assert not speedup.enough([0.0] * 7, protocol)
    assert speedup.enough([0.0] * 8, protocol)
    assert not speedup.enough([-1.0, 1.0] * 10, protocol)


shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@given(st.lists(shapes, min_size=1, max_size=4))
def test_regions_are_apart_and_hold_what_is_put_there(sizes):
    tensors = [torch.randn(size) for size in sizes]
    arena = new_arena(len(tensors), sum(t.numel() * 4 for t in tensors), torch.device("cpu"))
    try:
        regions = [arena.place(tensor) for tensor in tensors]
        for region, tensor in zip(regions, tensors, strict=True):
            arena.view(region).copy_(tensor)
        for region, tensor in zip(regions, tensors, strict=True):
            assert torch.equal(arena.view(region), tensor)
            arena.poison(region)
            assert tensor.numel() == 0 or bool(arena.view(region).isnan().all())
    finally:
        arena.close()


def test_a_strided_tensor_keeps_its_strides():
    tensor = torch.randn(6, 8)[::2, 1::3]
    arena = new_arena(1, tensor.untyped_storage().nbytes(), torch.device("cpu"))
    region = arena.place(tensor)
    view = arena.view(region)
    view.copy_(tensor)
    assert view.stride() == tensor.stride() and torch.equal(view, tensor)
    arena.close()


def test_arguments_that_cannot_cross_are_named():
    with pytest.raises(TypeError, match="object"):
        encode([object()], lambda tensor: None)


def test_seeds_are_apart_and_kernelbench_seeds_are_kernelbench():
    # Seeds KernelBench derives from 42 with five trials (measured on its own code).
    public = Seeds("")
    expected = [734796314, 576165995, 2197670066, 839703249, 2584932063]
    assert [public.trial(i) for i in range(5)] == expected
    assert public.init() == 42 and public.calls(KERNELBENCH) == 5
    secret = Seeds("00ff")
    drawn = [secret.init(), *(secret.trial(i) for i in range(9)), secret.forward(0)]
    assert len(set(drawn)) == len(drawn)
    assert {Seeds(f"{i:x}").calls(STRICT) for i in range(60)} == {3, 4, 5, 6}


def _request(**changes):
    arguments = {
        "name": "ext",
        "cpp_sources": ["torch::Tensor f(torch::Tensor x) { return torch::relu(x); }"],
        "functions": {"f": "f"},
        "cflags": ["-O3", "-fopenmp"],
    }
    return read_request({**arguments, **changes})


@pytest.mark.parametrize(
    "flag",
    ["-fplugin=a.so", "-wrapper x", "-B/tmp", "@file", "-specs=x", "-include x", "-I/etc", "-Wl,x"],
)
def test_flags_that_reach_out_are_refused(flag):
    with pytest.raises(BadRequest, match="not allowed"):
        _request(cflags=[flag])


@pytest.mark.parametrize("flag", ["-O3", "-march=native", "-ffast-math", "-DN=3", "-std=c++17"])
def test_ordinary_flags_pass(flag):
    assert _request(cflags=[flag]).cflags == (flag,)


@settings(max_examples=200)
@given(
    st.dictionaries(st.sampled_from(["name", "cpp_sources", "functions", "cflags"]), json_values)
)
def test_any_request_is_read_or_refused(arguments):
    try:
        request = read_request(arguments)
    except BadRequest:
        return
    (unit,) = units(request)
    files = compose(request, unit, thin=True)
    assert ("kernelgym_functions" in files[unit.file]) == (request.functions is not None)


def test_only_torch_names_send_a_build_to_the_real_headers():
    slips = [
        "kernel.cpp:3:5: error: ‘totl’ was not declared in this scope",
        "kernel.cpp:3:5: error: ‘size’ was not declared in this scope",
        "kernel.cpp:3:5: error: ‘torch::no_such_thing’ has not been declared",
        "kernel.cpp:3:5: error: ‘emty_like’ is not a member of ‘torch’",
        "kernel.cpp:3:5: error: expected ‘;’ before ‘return’",
        "kernel.cpp:3:5: error: ‘class at::Tensor’ has no member named ‘foo’",
    ]
    missing = [
        "kernel.cpp:3:5: error: ‘torch::nn’ has not been declared",
        "kernel.cpp:3:5: error: ‘from_blob’ is not a member of ‘torch’",
        "kernel.cpp:3:5: error: ‘PYBIND11_MODULE’ was not declared in this scope",
        "kernel.cpp:3:5: error: ‘py’ has not been declared",
        "a.h:9: error: incomplete type ‘kernelgym::Kind<std::map<int, int> >’ used",
    ]
    assert [line for line in slips if missing_from_thin(line)] == []
    assert [line for line in missing if not missing_from_thin(line)] == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool, torch.complex64])
def test_single_elements_are_compared_whatever_their_stride(dtype):
    apart = torch.ones(1, 3).to(dtype)[:, 1]
    assert apart.stride() == (3,)
    assert same_bytes(apart, torch.ones(1).to(dtype))
    assert not same_bytes(apart, torch.zeros(1).to(dtype))
