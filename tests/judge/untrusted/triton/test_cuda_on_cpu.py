"""Under `strict` the device ``cuda`` means the CPU to interpreted kernels; a finding says so."""

import pytest

from kernelgym.types import Status
from kernelgym.verdict import CUDA_ON_CPU, INTERPRETER_CHECK
from support.interpreted import RELU, relu

LAUNCH = "relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)"


def _forward(*lines):
    return relu(launch="\n        ".join([*lines, LAUNCH]))


STYLES = {
    "asserts": ("assert x.is_cuda and not x.is_cpu and x.device.type == 'cuda'",),
    "asks": (
        "assert torch.cuda.is_available() and torch.cuda.device_count() == 1",
        "assert torch.cuda.current_device() == x.get_device() == x.device.index",
        "count = torch.cuda.get_device_properties(x.device).multi_processor_count",
        "assert count > 1 and torch.cuda.get_device_capability() >= (8, 0)",
        "assert 'NVIDIA' in torch.cuda.get_device_name(0)",
    ),
    "moves": (
        "x = x.cuda().to('cuda').to(device='cuda:0', dtype=x.dtype).to(x.device).pin_memory()",
        "out = torch.empty(x.shape, device=torch.device('cuda')).cuda(0)",
        "out = torch.zeros_like(out.new_zeros(out.shape, device='cuda'), device=x.device)",
    ),
    "waits": (
        "torch.cuda.synchronize(); torch.cuda.empty_cache(); torch.cuda.set_device(x.device)",
        "stream, start, end = torch.cuda.Stream(), torch.cuda.Event(True), torch.cuda.Event(True)",
        "stream.wait_stream(torch.cuda.current_stream()); start.record(); end.record(stream)",
        "end.synchronize(); assert start.elapsed_time(end) > 0 and stream.query()",
        "with torch.cuda.device(x.device), torch.cuda.stream(stream): out.record_stream(stream)",
    ),
    "context": (
        "with torch.device('cuda'): out = torch.empty(x.shape)",
        "g = torch.Generator(device='cuda').manual_seed(1)",
        "torch.rand(3, device='cuda', generator=g)",
    ),
    "driver": (
        "from triton.runtime import driver",
        "assert driver.active.get_active_torch_device() == x.device",
        "assert driver.active.utils.get_device_properties(0)['multiprocessor_count'] > 1",
        "assert driver.active.get_current_target().backend == 'cuda'",
    ),
    "copies": (
        "import copy; twin = copy.deepcopy(self).to('cuda').cuda()",
        "assert str(x.device) == 'cuda:0' and not list(twin.parameters())",
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_kernel_written_for_a_gpu_is_correct_on_the_cpu(asking, style):
    verdict = asking.evaluate(RELU, _forward(*STYLES[style]))
    assert verdict.correct, verdict.message
    assert [finding.code for finding in verdict.findings] == [CUDA_ON_CPU]


def test_kernel_that_names_no_device_has_no_finding(asking):
    verdict = asking.evaluate(RELU, relu())
    assert verdict.correct and not verdict.findings


def test_torch_work_on_cuda_is_still_counted(asking):
    verdict = asking.evaluate(RELU, _forward("x = torch.relu(x.to('cuda'))"))
    assert verdict.status is Status.REJECTED, verdict.message


def test_bare_assertion_quotes_its_line(kernelbench):
    assert not kernelbench.capabilities.ruleset.cuda_on_cpu
    bare = kernelbench.evaluate(RELU, _forward("assert x.is_cuda"))
    worded = kernelbench.evaluate(RELU, _forward("assert x.is_cuda, 'no GPU'"))
    assert bare.status is worded.status is Status.RUNTIME_ERROR
    assert bare.message.startswith("AssertionError: assert x.is_cuda (line "), bare.message
    assert worded.message.startswith("AssertionError: no GPU (line ")
    assert CUDA_ON_CPU not in {finding.code for finding in bare.findings}


def test_cuda_graph_is_refused_in_a_sentence_and_with_the_finding(asking):
    verdict = asking.evaluate(RELU, _forward("graph = torch.cuda.CUDAGraph()"))
    assert verdict.status is Status.RUNTIME_ERROR
    assert "a CUDA graph cannot be captured here" in verdict.message
    assert [finding.code for finding in verdict.findings] == [CUDA_ON_CPU]


@pytest.mark.parametrize(
    "lines",
    [
        "v = tl.load(x + at + n)",
        "v = tl.load(x + tl.program_id(0))\ntl.store(out, v)",
    ],
)
def test_error_that_a_gpu_does_not_check_for_has_a_finding(asking, lines):
    verdict = asking.evaluate(RELU, relu(lines, store="v"))
    assert verdict.status is Status.RUNTIME_ERROR, verdict.message
    assert [finding.code for finding in verdict.findings] == [INTERPRETER_CHECK]
