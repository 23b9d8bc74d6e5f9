"""Whose kernels a GPU works for: names, shares of time, refusals."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.evidence.device_share import (
    DeviceKernel,
    OwnNames,
    device_share,
    read_kernels,
)
from kernelgym.judge.evidence.evidence import Evidence, _with_device_share
from kernelgym.rulesets import RULESETS, Ruleset

STRICT = RULESETS["strict"]
SOURCE = """
namespace fast { template <typename T> __global__ void scale(T* out, int n) {} }
extern "C" __global__ void add_rows(float* out) {}
static __global__ void reduce_kernel(float* out) {}
"""
OWN = OwnNames(SOURCE)
GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8"
RELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::relu, std::array<char*, 2>>(int)"
)


@pytest.mark.parametrize(
    "name",
    [
        "void fast::scale<float>(float*, int)",
        "add_rows",
        "(anonymous namespace)::reduce_kernel(float*)",
        "std::enable_if<true, void>::type fast::scale<(int)4>(float*)",
    ],
)
def test_names_in_the_text_are_its_own(name):
    assert name in OWN


@pytest.mark.parametrize(
    "name", [GEMM, RELU, "void at::native::reduce_kernel<512>(int)", "", "<>()"]
)
def test_names_of_libraries_are_not(name):
    assert name not in OWN


def test_a_name_that_triton_gave_is_own():
    assert "made_up_at_run_time" in OwnNames("", ["made_up_at_run_time"])


@pytest.mark.parametrize(
    "source",
    [
        f"// {GEMM}\n__global__ void mine(float* x) {{}}",
        f"/* __global__ void {GEMM}(float*) {{}} */",
        f"NAMES = '{GEMM}'\n__global__ void mine(float* x) {{}}",
        f"def {GEMM}(): pass",
    ],
)
def test_a_name_that_is_only_mentioned_is_not_own(source):
    assert GEMM not in OwnNames(source)


def test_a_triton_kernel_in_a_graph_is_own_by_its_text():
    source = "@triton.autotune(CONFIGS, [])\n@triton.jit\ndef add_kernel(x, y):\n    pass\n"
    assert "add_kernel" in OwnNames(source)


def test_instances_in_an_extension_are_own():
    library = b"\x7fELF\0_ZN3cub18DeviceReduceKernelIfEEvPT_i\0plain_kernel\0rest"
    own = OwnNames("", libraries=[library])
    assert "void cub::DeviceReduceKernel<float>(float*, int)" in own
    assert "plain_kernel" in own
    assert "void cub::DeviceScanKernel<float>(float*, int)" not in own
    assert "kernel" not in own


def kernel(name=GEMM, operator="", launches=1, ms=0.1):
    return DeviceKernel(name, operator, launches, ms)


def test_an_operators_kernels_are_torchs():
    found = device_share([kernel(operator="aten::mm"), kernel("add_rows", ms=0.3)], OWN)
    assert (found.torch_ms, found.library_ms) == (0.1, 0.0)
    assert found.own == pytest.approx(0.75)
    assert found.beside_libraries == 1.0


def test_what_nobody_launched_is_a_librarys():
    found = device_share([kernel(), kernel(RELU, ms=0.2), kernel("add_rows", ms=0.002)], OWN)
    assert found.library_ms == pytest.approx(0.3)
    assert found.libraries == (RELU, GEMM)
    assert found.beside_libraries == 0.0  # a launch that does nothing takes as long


def test_a_watched_capture_was_counted():
    found = device_share([kernel(), kernel("add_rows")], OWN, captured=True)
    assert (found.torch_ms, found.library_ms) == (0.1, 0.0)


def test_an_extensions_operator_launches_own_kernels():
    found = device_share([kernel("add_rows", "mine::add"), kernel(operator="mine::add")], OWN)
    assert (found.own_ms, found.library_ms) == (0.1, 0.1)


@given(
    st.lists(
        st.builds(
            kernel,
            name=st.sampled_from([GEMM, RELU, "add_rows", "fast::scale"]),
            operator=st.sampled_from(["", "aten::mm", "mine::add"]),
            launches=st.integers(1, 5),
            ms=st.floats(0, 100),
        )
    ),
    st.booleans(),
)
def test_shares_lie_between_none_and_all(kernels, captured):
    found = device_share(kernels, OWN, captured=captured)
    assert 0.0 <= found.own <= 1.0 and 0.0 <= found.beside_libraries <= 1.0
    total = found.own_ms + found.torch_ms + found.library_ms
    assert total == pytest.approx(sum(k.ms for k in kernels))
    if not found.libraries:
        assert found.beside_libraries == 1.0


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


@given(json)
def test_whatever_a_candidate_claims_is_read(claimed):
    for found in read_kernels({"device_kernels": claimed}) or ():
        assert found.launches > 0 and 0 <= found.ms < float("inf")


def test_a_claim_is_read_as_it_was_made():
    claimed = [[GEMM, "aten::mm", 2, 0.5], ["x", "", 0, 1.0], ["x", "", 1, float("nan")]]
    assert read_kernels({"device_kernels": claimed}) == (kernel(GEMM, "aten::mm", 2, 0.5),)
    assert read_kernels({}) is None


def refusal(*kernels, rules: Ruleset = STRICT):
    share = device_share(kernels, OWN)
    return _with_device_share(Evidence(1, 0.4), share, rules, "CUDA kernel")


def test_a_library_beside_an_idle_launch_is_refused():
    found = refusal(kernel(), kernel("add_rows", ms=0.0012))
    assert [finding.code for finding in found.findings] == ["hidden_library_work"]
    assert GEMM in found.complaint and "0.1000 ms" in found.complaint


def test_a_library_that_does_a_little_is_not():
    found = refusal(kernel(ms=0.1), kernel("add_rows", ms=0.3))
    assert not found.complaint
    assert found.device_share == pytest.approx(0.75)


def test_the_share_is_that_of_the_devices_time():
    found = refusal(kernel(operator="aten::conv2d", ms=0.95), kernel("add_rows", ms=0.05))
    assert not found.complaint and [f.code for f in found.findings] == ["small_share"]
    assert found.device_share == pytest.approx(0.05)


def test_sliver_of_the_devices_time_is_refused():
    assert (
        "sliver"
        in refusal(kernel(operator="aten::mm", ms=0.99), kernel("add_rows", ms=0.01)).complaint
    )


def test_rules_without_the_share_refuse_nothing():
    off = dataclasses.replace(STRICT, own_time=0.0, least_share=0.0)
    assert not refusal(kernel(ms=9.0), kernel("add_rows", ms=0.002), rules=off).complaint
