"""A candidate's side of shared device memory: what is opened and closed, and in which order."""

from types import SimpleNamespace

import pytest
import torch

from kernelgym.judge.untrusted import buffers, unseen

GIB = 1 << 30


@pytest.fixture
def made(monkeypatch):
    """Buffers over allocations that are made up, and what they ask the driver for, in order."""
    asked = []

    def open_shared(handle):
        asked.append(f"open {handle}")
        return hash(handle)

    memory = SimpleNamespace(
        open_shared=open_shared, close_shared=lambda address: asked.append("close")
    )
    monkeypatch.setattr(buffers, "_synchronize", lambda _: asked.append("finish"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append("give back"))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 3 * GIB)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 2 * GIB)
    return buffers.Buffers(memory, None, torch.device("cuda", 0)), asked


def test_what_moves_is_opened_before_its_old_place_is_let_go_of(made):
    mapped, asked = made
    mapped.open("a", 0)
    mapped.open("b", 0)
    assert asked == ["open a", "open b", "finish", "close"]


def test_memory_that_torch_keeps_is_given_back_with_the_last_allocation(made):
    mapped, asked = made
    mapped.open("a", 0)
    mapped.open("b", 1)
    asked.clear()
    mapped.release([1])
    assert asked == ["finish", "close"]
    asked.clear()
    mapped.release([0, 1])
    assert asked == ["finish", "close", "give back"]
    asked.clear()
    mapped.release([0, 1])
    assert not asked


def test_much_of_it_is_given_back_before(made, monkeypatch):
    mapped, asked = made
    mapped.open("a", 0)
    mapped.open("b", 1)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    asked.clear()
    mapped.release([1])
    assert asked == ["finish", "close", "give back"]


def test_held_back_inputs_hold_one_half_twice_until_they_are_written():
    room = torch.arange(24.0).reshape(3, 8)
    strided, counts, one = room[:, :4], torch.arange(5), torch.ones(2)
    held = buffers.HeldBack([strided, {"n": [counts, 3, one]}], unseen.below)
    assert torch.equal(room.flatten(), torch.arange(24.0))
    held.hold()
    assert room.flatten().tolist() == [*range(12, 24), *range(12, 24)]
    assert counts.tolist() == [3, 4, 2, 3, 4] and not one.any()
    held.write()
    assert torch.equal(room.flatten(), torch.arange(24.0))
    assert counts.tolist() == [0, 1, 2, 3, 4] and one.all()


@pytest.mark.parametrize(("few", "sizes"), [(False, {64}), (True, {64, 512})])
def test_few_bytes_of_large_inputs_are_held_back_somewhere(few, sizes):
    starts, seen = set(), set()
    for _ in range(60):
        large = torch.arange(1024.0)
        held = buffers.HeldBack([large], unseen.below, None, 512 if few else 64, few)
        ((place, _, size),) = held.copies()
        start = (place - large.data_ptr()) // 4
        held.hold()
        changed = (large != torch.arange(1024.0)).nonzero().flatten()
        assert changed.tolist() == list(range(start, start + size // 8))  # its second half, twice
        held.write()
        assert torch.equal(large, torch.arange(1024.0))
        starts.add(start)
        seen.add(size)
    assert len(starts) > 10 and seen == sizes
