"""Contexts on a device: made when the trusted side says so, and with how many queues."""

import pytest
import torch

from kernelgym.errors import JudgeError
from kernelgym.judge import worker_handle
from kernelgym.judge.device.accelerator import Accelerator
from kernelgym.judge.processes.candidate_handle import makes_streams
from support.peers import meeting

GIB = 1 << 30


@pytest.mark.parametrize(
    "source",
    [
        "side = torch.cuda.Stream()",
        "from torch.cuda import Stream as Lane",
        "auto side = at::cuda::getStreamFromPool();",
        "cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);",
        "kernel<<<1, 32, 0, cudaStreamPerThread>>>();",
        "with torch.cuda.graph(captured):",
        "g = torch.cuda.CUDAGraph()",
    ],
)
def test_who_makes_streams_has_a_queue_for_each(source):
    assert makes_streams(source)


@pytest.mark.parametrize(
    "source",
    [
        "kernel[(4,)](x, out, BLOCK=64)",
        "cudaStream_t stream = at::cuda::getCurrentCUDAStream();",
        "kernel<<<1, 32, 0, c10::cuda::getCurrentCUDAStream()>>>();",
        "stream = torch.cuda.current_stream().cuda_stream",
        "#include <c10/cuda/CUDAStream.h>",
    ],
)
def test_who_works_on_torchs_stream_needs_one_queue(source):
    assert not makes_streams(source)


@pytest.fixture
def met(tmp_path):
    with meeting(tmp_path) as (session, peer, *_):
        yield session.channel._candidate, peer


def test_a_context_is_made_once_and_only_when_it_is_asked_for(met):
    candidate, peer = met
    assert not candidate.has_context and not peer.asked
    candidate.ask_for_context()
    candidate.ask_for_context()
    candidate.wait_for_context(5.0)
    candidate.wait_for_context(5.0)
    assert candidate.has_context
    assert [request["op"] for request in peer.asked] == ["context"]


def test_a_context_that_cannot_be_made_is_nobodys_fault_but_ours(met):
    candidate, peer = met
    peer.lies["context"] = lambda _, reply: {**reply, "error": {"text": "no device"}}
    with pytest.raises(JudgeError, match=r"could not take the device.*no device"):
        candidate.wait_for_context(5.0)
    assert not candidate.has_context


def test_so_is_a_process_that_ends_meanwhile(met):
    candidate, peer = met
    peer.lies["context"] = lambda peer, _: peer.die()
    with pytest.raises(JudgeError, match="could not take the device"):
        candidate.wait_for_context(5.0)


@pytest.mark.parametrize(("free", "given_back"), [(0.2, 1), (0.3, 0)])
def test_memory_kept_for_later_goes_where_little_is_free(monkeypatch, tmp_path, free, given_back):
    emptied = []
    device = Accelerator("cpu", tmp_path)
    device.on_cuda = True
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (int(free * 80 * GIB), 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 30 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: GIB)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    device.make_room()
    assert len(emptied) == given_back


@pytest.mark.parametrize(("used", "is_untidy"), [(0, True), (2 * GIB, False), (3 * GIB, False)])
def test_what_is_in_use_is_not_in_disorder(monkeypatch, tmp_path, used, is_untidy):
    device = Accelerator("cpu", tmp_path)
    assert not device.is_untidy()
    device.on_cuda = True
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 3 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: used)
    assert device.is_untidy() == is_untidy


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_a_worker_splits_no_gigabytes_unless_it_is_told_how_to_allocate(
    monkeypatch, tmp_path, name
):
    for each in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(each, raising=False)
    made = worker_handle._environment(tmp_path, {"CUDA_VISIBLE_DEVICES": "3"})
    assert made["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:1024"
    assert made["CUDA_VISIBLE_DEVICES"] == "3"
    monkeypatch.setenv(name, "expandable_segments:True")
    made = worker_handle._environment(tmp_path, {})
    assert [made.get(each) for each in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")].count(
        None
    ) == 1
    assert made[name] == "expandable_segments:True"


@pytest.mark.parametrize(
    ("alone", "free_calls", "kept_calls", "emptied"),
    [(False, 1.5, 1, 0), (False, 0.5, 1, 1), (True, 1.5, 1, 1), (True, 0.5, 0.05, 0)],
)
def test_a_kernel_that_is_judged_alone_is_spared_more(
    monkeypatch, tmp_path, alone, free_calls, kept_calls, emptied
):
    with meeting(tmp_path) as (session, *_):
        inputs, times = [torch.zeros(1 << 10)], []
        session.buffers.example = (inputs, torch.zeros(1 << 10))
        session.buffers._located, session.buffers.alone = object(), alone  # as on a device
        free, kept = (int(calls * 2 * 4 * (1 << 10)) for calls in (free_calls, kept_calls))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 5 * GIB + kept)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 5 * GIB)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 80 * GIB))
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: times.append(1))
        session.buffers.make_room(inputs)
        session.buffers._located = None
    assert len(times) == emptied
