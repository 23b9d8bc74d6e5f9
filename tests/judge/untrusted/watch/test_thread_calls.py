"""Operators of other threads are named, or the record is missing."""

from __future__ import annotations

import threading

import pytest
import torch

from kernelgym.judge.compiling.library_symbols import LibraryWork, computes
from kernelgym.judge.evidence.evidence import _in_threads
from kernelgym.judge.untrusted.watch.thread_calls import ThreadCalls

X = torch.ones(4, 4)
THREADED = LibraryWork(unseen=("pthread_create", "at::_ops::mm::call"))


def _recorded(*works):
    """Return the operators named for one call with other threads."""
    calls = ThreadCalls()
    calls.begin()
    for work in works:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    torch.relu(X)
    calls.end()
    return calls.names


def test_operator_in_another_thread_is_named():
    assert "aten::mm" in _recorded(lambda: torch.mm(X, X))


def test_operator_in_the_calling_thread_is_not_named():
    names = _recorded(lambda: torch.empty(3))
    assert "aten::relu" not in names and "aten::empty" in names


def test_calls_add_up_and_end_alone_does_nothing():
    calls = ThreadCalls()
    calls.end()
    for work in (torch.sin, torch.cos):
        calls.begin()
        thread = threading.Thread(target=work, args=(X,))
        thread.start()
        thread.join()
        calls.end()
    assert calls.names >= {"aten::sin", "aten::cos"}


def test_profiler_that_runs_already_leaves_no_names(monkeypatch):
    def busy(*_):
        raise RuntimeError("the profiler is on")

    monkeypatch.setattr(torch._C._autograd, "_enable_profiler", busy)
    assert _recorded(lambda: torch.mm(X, X)) is None


def test_torch_without_the_option_leaves_no_names(monkeypatch):
    def old(**options):
        raise TypeError(f"unknown {sorted(options)}")

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", old)
    assert _recorded(lambda: torch.mm(X, X)) is None


@pytest.mark.parametrize(
    ("name", "work"),
    [
        *(("aten::mm", True), ("aten::softmax", True), ("mul_", True), ("aten::sum", True)),
        *(("aten::empty_strided", False), ("aten::copy_", False), ("aten::select", False)),
        *(("aten::scalar_tensor", False), ("aten::resolve_conj", False), ("aten::item", False)),
    ],
)
def test_operator_computes_or_only_moves_values(name, work):
    assert computes(name) is work


@pytest.mark.parametrize("elsewhere", [[], ["aten::empty", "aten::copy_"]])
def test_moves_in_threads_raise_no_complaint(elsewhere):
    assert _in_threads({"elsewhere": elsewhere}, THREADED) == ""


def test_work_in_threads_raises_a_complaint():
    assert "(aten::mm)" in _in_threads({"elsewhere": ["aten::empty", "aten::mm"]}, THREADED)


@pytest.mark.parametrize("seen", [{}, {"elsewhere": None}, {"elsewhere": 7}])
def test_threads_that_were_not_recorded_are_refused(seen):
    assert "cannot be recorded: pthread_create" in _in_threads(seen, THREADED)
    assert _in_threads(seen, LibraryWork()) == ""
