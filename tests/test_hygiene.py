"""What is known of a problem as a record: its JSON, its place on disk, its refusal."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import DegenerateProblem, ProblemError
from kernelgym.hygiene import REASONS, Hygiene, read_kept, refuse, write_kept
from kernelgym.rulesets import RULESETS
from kernelgym.testing import SAMPLE_PROBLEM

STRICT = RULESETS["strict"]
text = st.text(st.characters(), max_size=40)
records = st.builds(
    Hygiene,
    text,
    text,
    st.sampled_from(["fp32", "fp16", "bf16"]),
    st.sampled_from(["cpu", "cuda"]),
    st.lists(st.sampled_from(sorted(REASONS)), unique=True).map(tuple),
    text,
    st.booleans(),
)


@given(records)
def test_json_and_back(record: Hygiene) -> None:
    assert Hygiene.from_dict(json.loads(json.dumps(record.to_dict()))) == record


@given(records)
def test_a_summary_says_which_of_three(record: Hygiene) -> None:
    assert record.passes == (not record.reasons)
    if record.passes:
        assert record.summary == ("passes" if record.tested else "not tested")
    else:
        assert record.summary.split(", ") == list(record.reasons)


@given(records, st.sampled_from(["reasons", "tested", "detail", "problem_id"]), st.integers())
def test_records_of_the_wrong_form_are_refused(record: Hygiene, field: str, value: int) -> None:
    for broken in ({**record.to_dict(), field: value}, {**record.to_dict(), "more": value}):
        with pytest.raises(ValueError):
            Hygiene.from_dict(broken)
    short = record.to_dict()
    del short["problem_id"]
    with pytest.raises(ValueError):
        Hygiene.from_dict(short)


@given(st.one_of(st.just([]), st.lists(st.text(max_size=5), min_size=1)))
def test_unknown_reasons_are_refused(reasons: list[str]) -> None:
    data = {**Hygiene("p", "r", "fp32", "cpu").to_dict(), "reasons": reasons}
    if set(reasons) <= set(REASONS):
        assert Hygiene.from_dict(data).reasons == tuple(reasons)
    else:
        with pytest.raises(ValueError):
            Hygiene.from_dict(data)


def test_the_place_depends_on_source_ruleset_and_kind_of_device(tmp_path: Path) -> None:
    record = Hygiene(SAMPLE_PROBLEM.id, STRICT.label, "fp32", "cpu", ("zeros",), "so", True)
    write_kept(tmp_path / "new", SAMPLE_PROBLEM, STRICT, "cuda:1", record)
    folder = tmp_path / "new"
    assert read_kept(folder, SAMPLE_PROBLEM, STRICT, "cuda:0") == record
    renamed = dataclasses.replace(SAMPLE_PROBLEM, id="own/x", name="x")
    again = read_kept(folder, renamed, STRICT, "cuda")
    assert again is not None and again.problem_id == "own/x" and again.reasons == ("zeros",)
    half = dataclasses.replace(STRICT, precision="fp16")
    other = dataclasses.replace(SAMPLE_PROBLEM, source=SAMPLE_PROBLEM.source + "\n")
    assert read_kept(folder, SAMPLE_PROBLEM, STRICT, "cpu") is None
    assert read_kept(folder, SAMPLE_PROBLEM, half, "cuda") is None
    assert read_kept(folder, SAMPLE_PROBLEM, RULESETS["kernelbench"], "cuda") is None
    assert read_kept(folder, other, STRICT, "cuda") is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"reasons": 3}', "\x00\xff"])
def test_unreadable_records_are_none(tmp_path: Path, content: str) -> None:
    record = Hygiene(SAMPLE_PROBLEM.id, STRICT.label, "fp32", "cpu", tested=True)
    write_kept(tmp_path, SAMPLE_PROBLEM, STRICT, "cpu", record)
    (file,) = tmp_path.iterdir()
    file.write_text(content, "latin-1")
    assert read_kept(tmp_path, SAMPLE_PROBLEM, STRICT, "cpu") is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    record = Hygiene(SAMPLE_PROBLEM.id, STRICT.label, "fp32", "cpu")
    write_kept(blocked, SAMPLE_PROBLEM, STRICT, "cpu", record)
    assert read_kept(blocked, SAMPLE_PROBLEM, STRICT, "cpu") is None


def test_a_refusal_says_which_reason_and_how_to_insist() -> None:
    refuse(Hygiene("own/1", "strict@x", "fp32", "cpu", tested=True), "say please")
    bad = Hygiene("own/1", "strict@x", "fp32", "cpu", ("zeros", "constant"), "seen", True)
    with pytest.raises(DegenerateProblem, match="zeros: an output of zeros passes") as caught:
        refuse(bad, "say please")
    assert isinstance(caught.value, ProblemError)
    for part in ("own/1", "constant:", "fp32", "strict@x", "seen", "say please", "kernelgym lint"):
        assert part in str(caught.value)
