"""What a process says of its outputs and its state, against the bytes that it leaves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.judge.reference.reference import Reference
from kernelgym.judge.session.channel import Rejected
from kernelgym.types import Kernel, Status
from support.peers import (
    PROBLEM,
    SEEDS,
    SHAPE,
    WITH_STATE,
    call,
    construct,
    load,
    meeting,
    rejection,
    says,
    tensor,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (tensor(shape=[2, 3]), "output shape mismatch: expected [4, 6], got [2, 3]"),
        (tensor(shape=[6, 4]), "output shape mismatch: expected [4, 6], got [6, 4]"),
        (tensor("float64"), "output dtype mismatch: expected float32, got float64"),
        (
            tensor("float32", SHAPE, {"strides": [1, 4]}),
            "output stride mismatch: expected [6, 1], got [1, 4]",
        ),
        (tensor("float32", SHAPE, {}), "output has no readable description"),
        (tensor("float32", SHAPE, None), "output has no readable description"),
        (tensor("float32", None), "output has no readable description"),
        ({"tensor": []}, "output has no readable description"),
        ({"sequence": ["fits"]}, "output is a sequence, the reference gives a tensor"),
        ({"scalar": 1.0}, "output is a scalar, the reference gives a tensor"),
        ({"other": "a Fraction"}, "output is a Fraction"),
        ({"tensor": 1, "scalar": 1}, "output has no readable description"),
        ("fit", "output has no readable description"),
        (None, "output has no readable description"),
        (float("nan"), "output has no readable description"),
    ],
)
def test_a_description_that_is_not_the_references_is_wrong(met, claim, message):
    session, peer, _, reference = met
    peer.lies["go"] = says(claim)
    outcome = call(session, reference)
    assert (outcome.passed, outcome.message) == (False, message)


@pytest.mark.parametrize("offset", [0, -1, 1 << 20, 1 << 62])
def test_where_a_process_says_its_output_lies_is_not_looked_at_on_the_cpu(met, offset):
    session, peer, _, reference = met
    claim = tensor("float32", SHAPE, {"strides": [6, 1], "offset": offset, "memory": "ab"})
    peer.lies["go"] = says(claim)
    assert call(session, reference).passed

    def wrong(peer, reply):
        peer.spoil()
        return {**reply, "results": [claim]}

    peer.lies["go"] = wrong
    assert not call(session, reference).passed


def test_an_output_that_was_never_written_is_wrong(met):
    session, peer, _, reference = met
    assert call(session, reference).passed  # right values lay there before
    peer.honest = lambda request, fds: {"results": ["fits"], "launches": 1}
    outcome = call(session, reference)
    assert not outcome.passed and "24 of 24 elements" in outcome.message


def test_an_input_that_was_changed_is_told(met):
    session, peer, _, reference = met

    def change(peer, reply):
        peer.view(peer.calls[0]["args"][0]["tensor"])[0, 0] += 1
        return reply

    peer.lies["go"] = change
    outcome = call(session, reference)
    told = "the kernel changed input tensor 0, or returned its memory"
    assert (outcome.passed, outcome.message) == (False, told)


@pytest.mark.parametrize("results", [None, {}, "fits", [], ["fits", "fits"], 0])
def test_results_that_are_not_one_for_each_call_end_it(met, results):
    session, peer, _, reference = met
    peer.lies["go"] = lambda _, reply: {**reply, "results": results}
    assert rejection(call, session, reference) == (
        Status.RUNTIME_ERROR,
        "the kernel's process sent no readable results",
    )


# What asks for a build is answered as that, and then waited for: it says nothing of outputs.
said = st.dictionaries(st.text().filter(lambda key: key != "build"), json_values)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(json_values, said), min_size=8))
def test_nothing_that_is_said_makes_wrong_bytes_right(tmp_path_factory, answers):
    with meeting(tmp_path_factory.mktemp("peer")) as (session, peer, _, rules):
        reference = Reference(PROBLEM, rules, SEEDS)
        for claim, fields in answers:

            def lie(peer, reply, claim=claim, fields=fields):
                peer.spoil()
                return {**reply, "results": [claim], **fields, "nonce": reply["nonce"]}

            peer.lies["go"] = lie
            try:
                assert not call(session, reference).passed
            except Rejected as end:
                assert end.status is Status.RUNTIME_ERROR


@pytest.mark.parametrize("launches", [None, True, "1", 1.0, -7, 0])
def test_launches_that_cannot_be_read_are_none(met, launches):
    session, peer, _, reference = met
    peer.lies["go"] = lambda _, reply: {**reply, "launches": launches}
    assert call(session, reference).passed
    assert (session.tally.calls, session.tally.idle) == (1, 1)
    (finding,) = session.findings(Kernel("source", "triton"))
    assert finding.code == "no_kernel_launch"


@pytest.mark.parametrize("seen", [None, [], "launches", 1])
def test_what_cannot_be_read_was_not_seen(met, seen):
    session, peer, _, _ = met
    peer.lies["trace"] = lambda _, reply: {**reply, "seen": seen}
    assert session.trace("record") == {}


# --- state ----------------------------------------------------------------------------------------


@pytest.fixture
def with_state(tmp_path):
    with meeting(tmp_path) as (session, peer, _, rules):
        reference = Reference(WITH_STATE, rules, SEEDS)
        reference.prepare()
        assert list(reference.state) == ["weight"]
        load(session, reference)
        yield session, peer, reference


@pytest.mark.parametrize("missing", [["weight"], ["weight", "other"], None, "weight", {}, 1])
def test_a_missing_parameter_is_told_by_its_name(with_state, missing):
    session, peer, reference = with_state
    peer.lies["state"] = lambda _, reply: {**reply, "missing": missing}
    assert rejection(construct, session, reference) == (
        Status.RUNTIME_ERROR,
        "strict replaces parameters and buffers that are not drawn at random, or follow from "
        "others, after construction, and ModelNew has no parameter 'weight' of shape [6]: keep the "
        "reference's names and shapes, so that the judge can replace values by name",
    )


@pytest.mark.parametrize("missing", [[], ["other"], [None, 1, ["weight"]]])
def test_names_that_are_not_the_references_are_not_missed(with_state, missing):
    session, peer, reference = with_state
    peer.lies["state"] = lambda _, reply: {**reply, "missing": missing}
    construct(session, reference)


def test_judged_call_has_new_outputs_overwritten_and_no_others(met):
    session, peer, _, reference = met
    assert call(session, reference).passed
    asked = peer.asked[-1]
    assert (asked["op"], asked["timed"], asked["spoil"]) == ("go", False, [True])
    assert asked["late"] is None  # there are no streams on the CPU
