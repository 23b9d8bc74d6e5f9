"""How a process says what its kernel's output is, without running any more of the kernel's code."""

import gc
import json
import weakref

import pytest
import torch

from kernelgym.judge.untrusted import outputs, unseen


class _Late(Exception):
    pass


def _computes(*_):
    raise _Late


@pytest.mark.parametrize(
    "output",
    [
        type("L", (list,), {"__iter__": _computes, "__len__": _computes})([torch.zeros(2), 1]),
        type("T", (tuple,), {"__iter__": _computes})((torch.zeros(2), 1)),
        type("D", (dict,), {"items": _computes, "__iter__": _computes})({0: torch.zeros(2), 1: 1}),
        {type("K", (), {"__str__": _computes})(): torch.zeros(2)},
        [type("F", (float,), {"__float__": _computes, "__repr__": _computes})(1.5)],
        [type("P", (), {"__class__": property(_computes)})()],
    ],
    ids=["list", "tuple", "dict", "key", "number", "class"],
)
def test_nothing_of_a_kernels_own_runs_while_its_output_is_looked_at(output):
    json.dumps(outputs.describe(output, lambda _: {}))
    outputs.copied(output)


def test_what_a_class_holds_is_seen_and_not_what_it_says():
    lazy = type("L", (list,), {"__iter__": lambda self: iter([torch.zeros(3)])})([1, 2])
    assert outputs.describe(lazy, lambda _: {}) == {
        "sequence": [{"scalar": 1}, {"scalar": 2}],
    }
    pair = torch.max(torch.zeros(2, 3), dim=1)  # of a class of torch's own
    kinds = [["float32", [2]], ["int64", [2]]]
    assert outputs.describe(pair, lambda _: {}) == {"sequence": [{"tensor": k} for k in kinds]}


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float32, torch.bfloat16, torch.float64, torch.float8_e5m2, torch.complex64),
        *(torch.bool, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64),
    ],
)
def test_overwritten_output_keeps_no_element(dtype):
    output = torch.zeros(3, 5).to(dtype)
    outputs.overwrite([output], [True], unseen.below)
    left = output.to(torch.complex64 if output.is_complex() else torch.float64)
    assert not (left == 0).any()


def test_overwriting_changes_only_the_tensors_and_elements_asked_for():
    buffer, kept = torch.zeros(4, 6), torch.zeros(2)
    wide = torch.zeros(1, 3).expand(5, 3)
    outputs.overwrite({"a": buffer[:, ::2], "b": [kept, wide]}, [True, False, True], unseen.below)
    assert buffer[:, ::2].isnan().all() and wide.isnan().all()
    assert not buffer[:, 1::2].any() and not kept.any()


def test_large_output_is_mostly_overwritten_at_few_secret_places():
    seen = set()
    for _ in range(40):
        output = torch.zeros(300, 1000)
        outputs.overwrite(output, [True], unseen.below)
        places = output.isnan().flatten().nonzero().flatten()
        assert len(places)
        seen.add((len(places), int(places[0])))
    few = [count for count, _ in seen if count < 300]
    assert len(few) > 15 and all(count > 70 for count in few)


def test_output_of_inference_mode_is_overwritten():
    with torch.inference_mode():
        output = torch.zeros(2)
    with torch.no_grad():
        outputs.overwrite(output, [True], unseen.below)
    assert output.isnan().all()


def test_outputs_without_elements_or_memory_are_left_alone():
    odd = [torch.zeros(0), torch.zeros(2).to_sparse(), 3.0, None]
    outputs.overwrite(odd, [True, True], unseen.below)
    assert not outputs.overlap([odd, odd])


def test_outputs_of_two_calls_in_one_buffer_overlap():
    ring = torch.zeros(4, 8)
    assert outputs.overlap([ring[0], ring[1], torch.zeros(8), ring[0]])
    assert outputs.overlap([(torch.zeros(3), ring), [ring[2]]])
    assert not outputs.overlap([ring[0], ring[1], ring[2]])


def test_outputs_of_one_call_may_share_memory():
    whole = torch.zeros(4, 8)
    assert not outputs.overlap([(whole[:, :4], whole[:, 4:]), torch.zeros(3)])


def _described(output):
    found = []
    outputs.describe(output, lambda tensor: found.append(tensor) or {})
    assert len(found) == 2


@pytest.mark.parametrize(
    "look",
    [
        lambda output: outputs.tensors_in(output),
        lambda output: outputs.overwrite(output, [True, True], unseen.below),
        lambda output: outputs.overlap([output, [torch.zeros(2)]]),
        _described,
    ],
    ids=["tensors_in", "overwrite", "overlap", "describe"],
)
def test_memory_of_an_output_is_free_as_soon_as_it_was_looked_at(look):
    """In a reference cycle, outputs of 7 GB each stayed until Python's cycle collector ran."""
    output = [torch.ones(2), {"second": torch.ones(3)}]
    left = [weakref.ref(output[0]), weakref.ref(output[1]["second"])]
    gc.disable()
    try:
        look(output)
        del output
        assert [tensor() for tensor in left] == [None, None]
    finally:
        gc.enable()
