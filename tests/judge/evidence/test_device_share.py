"""Whose kernels a GPU works for: names, shares of time, refusals."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.evidence.device_share import (
    DeviceKernel,
    DeviceRun,
    OwnNames,
    device_share,
    read_run,
)
from kernelgym.judge.evidence.evidence import (
    Evidence,
    _with_device_share,
    in_timed_calls,
    on_device,
    runs_faster,
)
from kernelgym.judge.evidence.torch_share import TorchWork
from kernelgym.rulesets import RULESETS, Ruleset

STRICT = RULESETS["strict"]
SOURCE = """
namespace fast { template <typename T> __global__ void scale(T* out, int n) {} }
extern "C" __global__ void add_rows(float* out) {}
static __global__ void reduce_kernel(float* out) {}
"""
FUNCTIONS = (
    "_ZL32__device_stub__ZN4fast5scaleIfEEvPT_iPfi",
    "_Z29__device_stub__Z8add_rowsPfPf",
    "_Z60__device_stub__ZN36_GLOBAL__N__5c480c0c_4_k_cu_5a21a16713reduce_kernelEPfPf",
)
OWN = OwnNames(SOURCE, functions=FUNCTIONS)
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
        f"NVRTC = '__global__ void {GEMM}(float* x) {{}}'",
    ],
)
def test_a_name_that_is_only_mentioned_is_not_own(source):
    assert GEMM not in OwnNames(source)


def test_a_kernel_that_text_has_nvrtc_compile_is_own_by_its_declaration():
    text = 'extern "C" __global__ void row_sum(float* out) {}'
    assert "row_sum" in OwnNames(f"nvrtcCompileProgram({text})")
    assert "row_sum" not in OwnNames(f"HELP = '{text}'")


def test_instances_in_an_extension_are_own():
    own = OwnNames("", functions=["_Z9__device_stub__ZN3cub18DeviceReduceKernelIfEEvPT_iPfi"])
    assert "void cub::DeviceReduceKernel<float>(float*, int)" in own
    assert "void cub::DeviceScanKernel<float>(float*, int)" not in own
    assert "kernel" not in own


def test_name_that_a_library_generates_is_not_own_even_if_triton_is_said_to_have_launched_it():
    own = OwnNames("def cudnn_like_softmax(x): pass", [GEMM, "cudnn_like_softmax", "cudnn_conv"])
    assert "cudnn_like_softmax" in own
    assert GEMM not in own and "cudnn_conv" not in own


def test_namesake_of_a_kernel_with_types_of_cublas_is_not_own():
    own = OwnNames("", functions=["_Z9__device_stub__Z17gemv2T_kernel_valIfEvPT_Pf"])
    assert "void gemv2T_kernel_val<float>(float*)" in own
    assert "void gemv2T_kernel_val<int, 128, cublasGemvParamsEx<int, float>>(float)" not in own


def test_name_of_a_library_is_not_own_even_if_an_extension_has_it():
    gemm = "ampere_sgemm_128x64_nn"
    assert gemm not in OwnNames("", functions=[f"_Z9__device_stub__Z{len(gemm)}{gemm}Pf"])


def kernel(name=GEMM, operator="", launches=1, ms=0.1):
    return DeviceKernel(name, operator, launches, ms)


def share_of(*kernels, spans=None, **options):
    """Return the shares of kernels that run one after another, or in the spans given."""
    alone = [((place,), each.ms) for place, each in enumerate(kernels)]
    return device_share(
        DeviceRun(kernels, tuple(alone if spans is None else spans)), OWN, **options
    )


@pytest.mark.parametrize(
    ("name", "operator", "owner"),
    [
        (GEMM, "aten::mm", "torch"),
        (GEMM, "aten::set_", "library"),
        (GEMM, "aten::add", "library"),
        ("some_gemm", "aten::set_", "library"),
        ("add_rows", "aten::set_", "own"),
        (RELU, "aten::copy_", "torch"),
        ("void (anonymous namespace)::softmax_warp_forward<float>()", "aten::_softmax", "torch"),
        ("void cudnn::bn_fw_inf<float>()", "aten::cudnn_batch_norm", "torch"),
    ],
)
def test_kernel_is_torchs_if_its_operator_may_launch_it(name, operator, owner):
    found = share_of(kernel(name, operator))
    times = {"own": found.own_ms, "torch": found.torch_ms, "library": found.library_ms}
    assert times[owner] == pytest.approx(0.1)


def test_time_beside_a_library_is_the_librarys():
    spins, works = kernel("add_rows", ms=0.2), kernel(ms=0.2)
    found = share_of(spins, works, spans=[((0, 1), 0.19), ((0,), 0.01), ((1,), 0.01)])
    assert found.own_ms == pytest.approx(0.01) and found.library_ms == pytest.approx(0.2)
    assert found.beside_libraries < 0.05
    beside_torch = share_of(
        spins, kernel(operator="aten::mm", ms=0.2), spans=[((0, 1), 0.2), ((0,), 0.05)]
    )
    assert beside_torch.own == pytest.approx(0.2)


def test_time_of_own_kernels_beside_each_other_is_own():
    found = share_of(kernel("add_rows"), kernel("fast::scale"), spans=[((0, 1), 0.1)])
    assert found.own == 1.0 and found.own_ms == pytest.approx(0.1)


def test_an_operators_kernels_are_torchs():
    found = share_of(kernel(operator="aten::mm"), kernel("add_rows", ms=0.3))
    assert (found.torch_ms, found.library_ms) == (0.1, 0.0)
    assert found.own == pytest.approx(0.75)
    assert found.beside_libraries == 1.0


def test_what_nobody_launched_is_a_librarys():
    found = share_of(kernel(), kernel(RELU, ms=0.2), kernel("add_rows", ms=0.002))
    assert found.library_ms == pytest.approx(0.3)
    assert found.libraries == (RELU, GEMM)
    assert found.beside_libraries == 0.0  # a launch that does nothing takes as long


def test_a_watched_capture_was_counted():
    found = share_of(kernel(), kernel("add_rows"), captured=True)
    assert (found.torch_ms, found.library_ms) == (0.1, 0.0)


def test_an_extensions_operator_launches_own_kernels():
    found = share_of(kernel("add_rows", "mine::add"), kernel(operator="mine::add"))
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
    found = share_of(*kernels, captured=captured)
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


@given(json, json)
def test_whatever_a_candidate_claims_is_read(claimed, together):
    found = read_run({"device_kernels": claimed, "device_spans": together})
    if found is not None:
        assert all(each.launches > 0 and each.ms >= 0 for each in found.kernels)
        assert 0.0 <= device_share(found, OWN).own <= 1.0


def test_a_claim_is_read_as_it_was_made():
    claimed = [["bad"], ["add_rows", "aten::mm", 2, 0.5], [GEMM, "", 1, 1]]
    spans = [[[1], 0.25], [[1, 2], 0.25], [[0], 3.0], [[2, "x"], 1]]
    found = read_run({"device_kernels": claimed, "device_spans": spans})
    kernels = (kernel("add_rows", "aten::mm", 2, 0.5), kernel(ms=1.0))
    assert found == DeviceRun(kernels, (((0,), 0.25), ((0, 1), 0.25), ((1,), 1.0)))
    alone = read_run({"device_kernels": claimed})
    assert alone == DeviceRun(kernels, (((0,), 0.5), ((1,), 1.0)))
    assert read_run({}) is None


def refusal(*kernels, rules: Ruleset = STRICT, epilogue_ms: float = math.inf):
    share = share_of(*kernels)
    return _with_device_share(Evidence(1, 0.4), share, rules, "CUDA kernel", epilogue_ms)


def test_a_library_beside_an_idle_launch_is_refused():
    found = refusal(kernel(), kernel("add_rows", ms=0.0012))
    assert [finding.code for finding in found.findings] == ["hidden_library_work"]
    assert GEMM in found.complaint and "0.1000 ms" in found.complaint


def test_a_library_that_does_a_little_is_not():
    found = refusal(kernel(ms=0.1), kernel("add_rows", ms=1.9))
    assert not found.complaint
    assert found.device_share == pytest.approx(0.95)


def test_the_share_is_that_of_the_devices_time():
    found = refusal(kernel(operator="aten::conv2d", ms=0.95), kernel("add_rows", ms=0.05))
    assert not found.complaint and [f.code for f in found.findings] == ["small_share"]
    assert found.device_share == pytest.approx(0.05)


def test_sliver_of_the_devices_time_is_refused():
    assert (
        "sliver"
        in refusal(kernel(operator="aten::mm", ms=0.99), kernel("add_rows", ms=0.01)).complaint
    )


PRODUCT = kernel(operator="aten::addmm", ms=0.99)
EPILOGUE = PRODUCT, kernel("add_rows", ms=0.01)


def test_fused_epilogue_of_a_long_product_is_told_and_not_refused():
    found = refusal(*EPILOGUE, epilogue_ms=0.005)
    assert not found.complaint and [f.code for f in found.findings] == ["small_share"]
    assert found.device_share == pytest.approx(0.01)


@pytest.mark.parametrize(
    "kernels",
    [
        (*EPILOGUE, kernel("at::native::add", operator="aten::add", ms=1.0)),
        (PRODUCT, kernel("at::native::add", operator="aten::add", ms=0.01)),
        (PRODUCT, kernel("add_rows", ms=0.0015)),
        (PRODUCT, kernel("add_rows", ms=0.004)),
        (PRODUCT,),
    ],
    ids=["torch does it beside", "torch does it alone", "an empty launch", "a bias", "no kernel"],
)
def test_sliver_beside_a_long_product_is_refused(kernels):
    assert "sliver" in refusal(*kernels, epilogue_ms=0.005).complaint


def test_epilogue_of_products_that_the_reference_does_not_make_is_refused():
    assert "sliver" in refusal(*EPILOGUE).complaint


@given(
    st.lists(st.sampled_from(("aten::mm", "aten::add", "", "own")), max_size=6),
    st.floats(0.0021, 50),
)
def test_share_beside_products_is_that_of_a_call_without_them(names, ms):
    def listed(operator):
        if operator == "own":
            return kernel("add_rows", ms=ms)
        return kernel(f"at::native::{operator or 'x'}", operator=operator, ms=ms)

    kernels = [listed(name) for name in names]
    others = [each for name, each in zip(names, kernels, strict=True) if name != "aten::mm"]
    found = share_of(*kernels).beside_products
    assert found == pytest.approx(share_of(*others).own if "own" in names else 0.0)


def test_whole_model_without_a_custom_kernel_in_the_call_is_refused():
    share, watched = share_of(PRODUCT), Evidence(1, 0.6, whole_model=True)
    assert _with_device_share(watched, share, STRICT, "CUDA kernel").complaint


def test_sliver_of_a_whole_models_time_is_told_and_not_refused():
    share = share_of(kernel(operator="aten::mm", ms=0.99), kernel("add_rows", ms=0.01))
    watched = Evidence(1, 0.6, whole_model=True)
    found = _with_device_share(watched, share, STRICT, "CUDA kernel")
    assert not found.complaint and [each.code for each in found.findings] == ["small_share"]


def test_rules_without_the_share_refuse_nothing():
    off = dataclasses.replace(STRICT, own_time=0.0, least_share=0.0)
    assert not refusal(kernel(ms=9.0), kernel("add_rows", ms=0.002), rules=off).complaint


WATCHED = Evidence(ran=share_of(kernel("add_rows", ms=0.5)), own_names=OWN)


def timed(*kernels, calls=1, watched=WATCHED, timed_ms=0.3):
    """Return the finding on a graph of `calls` calls that runs these kernels."""
    seen = {"device_kernels": [[k.name, "", k.launches * calls, k.ms * calls] for k in kernels]}
    return in_timed_calls(watched, seen, calls, timed_ms, SimpleNamespace(ruleset=STRICT))


def test_timed_calls_that_leave_the_work_to_a_library_are_refused():
    found = timed(kernel(ms=0.1), kernel("add_rows", ms=0.003), calls=7)
    assert found.code == "hidden_library_work" and GEMM in found.message
    assert "0.1000 ms of a timed call, and took 0.0000 ms" in found.message


def test_timed_calls_that_do_what_the_watched_call_did_pass():
    assert timed(kernel("add_rows", ms=0.1)) is None
    beside_torch = share_of(kernel(operator="aten::mm", ms=0.5), kernel("add_rows", ms=0.5))
    watched = Evidence(ran=beside_torch, own_names=OWN)
    assert timed(kernel(ms=0.5), kernel("add_rows", ms=0.01), watched=watched) is None
    assert timed(kernel(ms=0.9), kernel("add_rows", ms=0.01), watched=watched) is not None
    assert in_timed_calls(WATCHED, {}, 7, 0.3, SimpleNamespace(ruleset=STRICT)) is None


def test_own_kernel_that_spins_only_while_it_is_listed_is_refused():
    spinning = kernel(ms=0.2), kernel("add_rows", ms=5.0)
    assert timed(*spinning, timed_ms=0.25).code == "hidden_library_work"
    assert timed(*spinning, timed_ms=5.2) is None


def test_timed_calls_are_asked_about_if_they_run_faster():
    assert runs_faster(WATCHED, 0.2) and not runs_faster(WATCHED, 0.45)
    assert not runs_faster(Evidence(), 0.2)


class Listing:
    """A session whose watched calls list what they are told to, one list after the other."""

    def __init__(self, *lists, passed=True, products=0.0, output=None):
        self.lists, self.passed, self.calls, self.products = [*lists], passed, [], products
        self.buffers = SimpleNamespace(example=([], output))
        self.device, self.channel = "cuda:0", SimpleNamespace(made={})

    def trace(self, mode):
        if mode == "device":
            return {}
        kernels = self.lists.pop(0)
        listed = [[k.name, k.operator, k.launches, k.ms] for k in kernels]
        return {"device_kernels": listed, "products": self.products}

    def call(self, reference, index, explain):
        self.calls.append(index)
        return SimpleNamespace(passed=self.passed)


def listed(session):
    """Return the evidence that a session's lists give."""
    case = SimpleNamespace(ruleset=STRICT, kernel=SimpleNamespace(source=SOURCE, language="cuda"))
    case.kernel.source = SOURCE + '#include <nvrtc.h>  // "compile"'
    run = SimpleNamespace(session=session, case=case, reference=SimpleNamespace(plan=[0, 1]))
    return on_device(Evidence(1, 0.4), run, TorchWork({}, 6e5, 0.0, estimated=4e5))


INTERRUPTED = kernel(operator="aten::mm", ms=9.0), kernel("add_rows", ms=0.01)
QUIET = kernel(operator="aten::mm", ms=0.05), kernel("add_rows", ms=0.01)


def test_share_that_would_refuse_a_kernel_is_found_in_further_calls_first():
    session = Listing(INTERRUPTED, QUIET, QUIET)
    found = listed(session)
    assert not found.complaint and found.device_share == pytest.approx(1 / 6)
    assert session.calls == [5, 6]
    session = Listing(INTERRUPTED, INTERRUPTED, INTERRUPTED)
    assert "sliver" in listed(session).complaint and session.calls == [5, 6, 7]


@pytest.mark.parametrize(
    ("products", "refused"), [(1e6, False), (1.2e6, False), (2e6, True), (0.0, True), (None, True)]
)
def test_products_of_the_listed_call_are_compared_with_the_references(products, refused):
    session = Listing(INTERRUPTED, INTERRUPTED, INTERRUPTED, products=products)
    assert bool(listed(session).complaint) is refused


@pytest.mark.parametrize(("rows", "refused"), [(1000, False), (20_000, True)])
def test_an_epilogue_takes_as_long_as_its_output_takes_through_a_cache(rows, refused):
    output = torch.empty(rows, 1000, device="meta")  # 8 MB for 1000 rows, read and written
    session = Listing(INTERRUPTED, INTERRUPTED, INTERRUPTED, products=1e6, output=output)
    assert bool(listed(session).complaint) is refused


def test_share_that_refuses_nothing_is_measured_once():
    session = Listing(QUIET)
    assert not listed(session).complaint and session.calls == [5]


def test_wrong_output_while_kernels_are_listed_is_refused_at_once():
    session = Listing(QUIET, QUIET, QUIET, passed=False)
    assert "the output is wrong" in listed(session).complaint and session.calls == [5]
