"""Reading a corpus, and scoring verdicts on it; nothing is judged here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernelgym.errors import UsageError
from kernelgym.languages import LANGUAGES
from kernelgym.redteam.corpus import CLASSES, CorpusEntry, RedTeamOutcome, sample, select, summarise
from kernelgym.redteam.files import load_entries, read_entry
from kernelgym.suites.directory import DirectorySuite
from kernelgym.testing import verdict
from kernelgym.types import Finding, Severity, Status

CORPUS = Path(__file__).parents[1] / "adversarial"
BODY = "class ModelNew:\n    pass\n"
PROBLEMS = ("relu", "add")


def written(**fields: str) -> str:
    """Return a file with these header fields, given as TOML."""
    lines = [f"# {name} = {value}" for name, value in fields.items()]
    return "\n".join(["# /// redteam", *lines, "# ///", BODY])


def exploit(**fields: str) -> str:
    """Return a sound exploit file, but for the fields given."""
    base = {"class": '"A1"', "problem": '"relu"', "devices": '["cpu", "cuda"]', "what": '"Bad."'}
    return written(**{**base, **fields})


def entry(kind: str = "exploit", exploit_class: str = "A1", **fields: object) -> CorpusEntry:
    """Return an entry of a class."""
    base = dict(name="A1_x.cpp", problem="relu", language="cpp", devices=("cpu",), what="Bad.")
    cls = exploit_class if kind == "exploit" else ""
    return CorpusEntry(**{**base, **fields}, kind=kind, source=BODY, exploit_class=cls)  # type: ignore[arg-type]


def test_classes_are_numbered_through():
    assert (CLASSES[0], CLASSES[-1], len(CLASSES)) == ("A1", "I23", 23)
    assert [int(name[1:]) for name in CLASSES] == list(range(1, 24))
    assert {"B6", "C8", "D9", "E13", "F17", "G18", "H22"} <= set(CLASSES)


def test_a_header_says_it_all():
    source = exploit(
        accepted_if='"speedup > 1.5"', caught_by='["wrong", "timer"]', devices='["cuda"]'
    )
    found = read_entry("A1_stale.triton.py", "exploit", source, PROBLEMS)
    assert found == CorpusEntry(
        name="A1_stale.triton",
        kind="exploit",
        problem="relu",
        language="triton",
        devices=("cuda",),
        what="Bad.",
        source=source,
        exploit_class="A1",
        style="A1",
        faster_than=1.5,
        caught_by=("wrong", "timer"),
    )
    assert found.runs_on("cuda:3") and not found.runs_on("cpu")
    assert found.kernel.source == source and found.kernel.language == "triton"


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("A1_x.cpp.py", BODY, "first line must be '# /// redteam'"),
        ("A1_x.cpp.py", "", "first line must be '# /// redteam'"),
        ("A1_x.cpp.py", "# /// redteam\n# problem = 1\n", "not closed"),
        ("A1_x.cpp.py", "# /// redteam\nimport torch\n# ///\n", "not closed .*import torch"),
        ("A1_x.cpp.py", written(what='"unfinished'), "not TOML"),
        ("A1_x.py", exploit(), "must look like CLASS_slug.LANGUAGE.py"),
        ("A1_x.fortran.py", exploit(), "unknown language 'fortran'"),
        ("A1_x.hip.py", exploit(), "'hip' does not run on device 'cpu'"),
        ("A1_x.cpp.py", exploit(), "'cpp' does not run on device 'cuda'"),
        ("A1_x.triton.py", exploit(devices='["gpu"]'), "unknown device kind 'gpu'.*cpu, cuda"),
        ("A1_x.triton.py", exploit(devices="[]"), "'devices' must be a list of strings"),
        ("A1_x.triton.py", exploit(devices='"cpu"'), "'devices' must be a list of strings"),
        ("A1_x.triton.py", exploit(problem='"rely"'), "unknown problem 'rely'; did you mean relu"),
        ("A1_x.triton.py", exploit(what='" "'), "'what' must be text"),
        ("A1_x.triton.py", exploit(**{"class": '"J24"'}), "unknown class 'J24'"),
        ("A2_x.triton.py", exploit(), "must begin with its class and an underscore: 'A1_"),
        ("A12_x.triton.py", exploit(), "must begin with its class and an underscore: 'A1_"),
        ("A1_x.triton.py", exploit(accepted_if='"fast"'), "'speedup > 1.5', got 'fast'"),
        ("A1_x.triton.py", exploit(accepted_if='"speedup > 2"'), "not timed on 'cpu'"),
        ("A1_x.triton.py", exploit(caught='["wrong"]'), "unknown field.*'caught'.*caught_by"),
        ("A1_x.triton.py", written(**{"class": '"A1"', "what": '"Bad."'}), "lacks 'devices'"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(name, source, complaint):
    with pytest.raises(UsageError, match=complaint):
        read_entry(name, "exploit", source, PROBLEMS)


@pytest.mark.parametrize("field", ["class", "accepted_if", "caught_by", "open"])
def test_an_honest_file_has_no_field_of_an_exploit(field):
    base = {"problem": '"relu"', "devices": '["cpu"]', "what": '"Good."'}
    assert read_entry("good.cpp.py", "honest", written(**base), PROBLEMS).exploit_class == ""
    with pytest.raises(UsageError, match=f"unknown field.*{field!r}"):
        read_entry("good.cpp.py", "honest", written(**base, **{field: '"A1"'}), PROBLEMS)


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_text_is_refused_by_a_usage_error_or_read(text):
    for source in (text, f"# /// redteam\n{text}", f"# /// redteam\n# {text}\n# ///\n"):
        with pytest.raises(UsageError):
            read_entry("A1_x.cpp.py", "exploit", source, PROBLEMS)


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=60).filter(
        str.strip
    ),
    st.sampled_from(CLASSES),
    st.floats(0, 99).map(lambda x: round(x, 3)),
)
@example("0\u2028", "A1", 0.0)  # a line separator to Python, not to TOML
def test_what_is_written_is_read(what, exploit_class, factor):
    quoted = what.replace("\\", "\\\\").replace('"', '\\"')
    source = exploit(
        **{"class": f'"{exploit_class}"', "what": f'"{quoted}"', "devices": '["cuda"]'},
        accepted_if=f'"speedup > {factor:.3f}"',
    )
    found = read_entry(f"{exploit_class}_x.cuda.py", "exploit", source, PROBLEMS)
    assert (found.what, found.exploit_class, found.faster_than) == (what, exploit_class, factor)


def test_a_folder_is_read_in_the_order_of_the_classes(tmp_path):
    for folder, name, text in (
        ("honest", "aaa.cpp.py", written(problem='"add"', devices='["cpu"]', what='"Good."')),
        ("exploits", "B6_x.triton.py", exploit(**{"class": '"B6"'})),
        ("exploits", "A2_x.triton.py", exploit(**{"class": '"A2"'})),
        ("exploits", "_draft.py", "not read"),
        ("exploits", "A1_x.triton.py", exploit()),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    found = load_entries(tmp_path, PROBLEMS)
    assert [e.name for e in found] == ["A1_x.triton", "A2_x.triton", "B6_x.triton", "aaa.cpp"]
    assert [e.name[:2] for e in select(found, "cuda:0")] == ["A1", "A2", "B6"]
    assert [e.name for e in select(found, "cpu", "A*.triton")] == ["A1_x.triton", "A2_x.triton"]
    assert [e.name for e in select(found, "cpu", "aa")] == ["aaa.cpp"]
    with pytest.raises(UsageError, match=r"no kernel for device 'cuda:0' whose name matches 'aaa'"):
        select(found, "cuda:0", "aaa")
    (tmp_path / "exploits" / "A3_x.cpp.py").write_text(BODY)
    with pytest.raises(UsageError, match=r"A3_x\.cpp\.py: its first line"):
        load_entries(tmp_path, PROBLEMS)


def test_a_part_stands_in_the_source_where_it_is_named(tmp_path):
    for folder in ("exploits", "parts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "parts" / "relu.triton.py").write_text("def relu(x):\n    return x.clamp(0)\n")
    (tmp_path / "parts" / "scan.cpp").write_text("int \\scan;\n")
    body = '# /// part relu.triton.py\n\nCODE = """\n// /// part scan.cpp\n"""\n'
    path = tmp_path / "exploits" / "A1_x.triton.py"
    path.write_text(exploit() + body)
    (found,) = load_entries(tmp_path, PROBLEMS)
    filled = 'def relu(x):\n    return x.clamp(0)\n\nCODE = """\nint \\scan;\n"""\n'
    assert found.source == exploit() + filled
    path.write_text(exploit() + "# /// part relu.cpp\n")
    with pytest.raises(UsageError, match=r"A1_x\.triton\.py: unknown part 'relu\.cpp'"):
        load_entries(tmp_path, PROBLEMS)


def test_every_part_of_our_corpus_is_used():
    files = [*CORPUS.glob("exploits/*.py"), *CORPUS.glob("honest/*.py")]
    text = "\n".join(file.read_text() for file in files)
    parts = {part.name for part in (CORPUS / "parts").iterdir()}
    assert set(re.findall(r"^(?:#|//) /// part (\S+)$", text, re.MULTILINE)) == parts


def test_an_empty_folder_is_no_corpus(tmp_path):
    with pytest.raises(UsageError, match="holds no corpus"):
        load_entries(tmp_path, PROBLEMS)


HARD = Finding("forbidden_import", "no", Severity.HARD)
SOFT = Finding("stream_use", "hm")
SENSE = Finding("no_sense", "the problem cannot be judged", Severity.INFO)


@pytest.mark.parametrize(
    ("of", "became", "result", "catches"),
    [
        (entry(), verdict("wrong"), "caught", ("wrong",)),
        (entry(), verdict("rejected", findings=(SOFT, HARD)), "caught", ("forbidden_import",)),
        (entry(), verdict("rejected"), "caught", ("rejected",)),
        (entry(), verdict("correct"), "accepted", ()),
        (entry(), verdict("correct", speedup=0.1), "accepted", ()),
        (entry(open="hard"), verdict("correct"), "open", ()),
        (entry(open="hard"), verdict("timeout"), "caught", ("timeout",)),
        (entry(), verdict("unavailable"), "unavailable", ()),
        (entry(caught_by=("no_sense",)), verdict("unavailable", findings=(SENSE,)), "caught",
         ("no_sense",)),
        (entry("honest", caught_by=("no_sense",)), verdict("unavailable", findings=(SENSE,)),
         "unavailable", ()),
        (entry(faster_than=1.5), verdict("correct"), "caught", ("untimed",)),
        (entry(faster_than=1.5), verdict("correct", speedup=1.55, speedup_low=1.4), "caught",
         ("slow",)),
        (entry(faster_than=1.5), verdict("correct", speedup=9.0), "accepted", ()),
        (entry("honest"), verdict("correct"), "passed", ()),
        (entry("honest"), verdict("runtime_error"), "refused", ("runtime_error",)),
        (entry("honest"), verdict("unavailable"), "unavailable", ()),
    ],
)  # fmt: skip
def test_what_a_verdict_means_for_an_entry(of, became, result, catches):
    outcome = RedTeamOutcome(of, became)
    assert (outcome.result, outcome.catches) == (result, catches)
    assert outcome.failed == (result in ("accepted", "refused", "unavailable"))


def test_a_catch_that_nobody_expected_is_noticed():
    expecting = entry(caught_by=("wrong", "forbidden_import"))
    assert RedTeamOutcome(expecting, verdict("timeout")).unexpected
    assert not RedTeamOutcome(expecting, verdict("wrong")).unexpected
    assert not RedTeamOutcome(expecting, verdict("rejected", findings=(HARD,))).unexpected
    assert not RedTeamOutcome(expecting, verdict("correct")).unexpected  # worse: it was not caught
    assert not RedTeamOutcome(entry(), verdict("timeout")).unexpected
    assert not RedTeamOutcome(
        entry(faster_than=2.0, caught_by=("slow",)), verdict("correct", speedup=1.0)
    ).unexpected


ENTRIES = st.builds(
    entry,
    st.sampled_from(["exploit", "honest"]),
    st.sampled_from(CLASSES),
    open=st.sampled_from(["", "hard"]),
    faster_than=st.sampled_from([None, 1.5]),
)
VERDICTS = st.builds(verdict, st.sampled_from(list(Status))) | st.builds(
    verdict, st.just("correct"), speedup=st.floats(0.1, 50)
)


@given(st.lists(st.builds(RedTeamOutcome, ENTRIES, VERDICTS), max_size=30))
def test_a_summary_counts_everything_once(outcomes):
    summaries = summarise(outcomes)
    assert sum(summary.entries for summary in summaries) == len(outcomes)
    for summary in summaries:
        assert sum(summary.results.values()) == summary.entries
        stopped = summary.results.get("caught", 0) + summary.results.get("refused", 0)
        assert sum(count for _, count in summary.caught_by) == stopped
    names = [summary.name for summary in summaries]
    assert names == sorted(set(names), key=[*CLASSES, "honest"].index)


def test_our_own_corpus_can_be_read_and_is_as_large_as_it_says():
    problems = {problem.name for problem in DirectorySuite(CORPUS / "problems").problems()}
    entries = load_entries(CORPUS, problems)
    honest = [found for found in entries if found.kind == "honest"]
    assert len(honest) >= 50
    assert sum(found.runs_on("cpu") for found in honest) >= 20
    assert sum(found.runs_on("cuda") for found in honest) >= 30
    assert {found.language for found in honest} == set(LANGUAGES) - {"hip"}
    exploits = [found for found in entries if found.kind == "exploit"]
    assert len(exploits) >= 80
    assert {found.exploit_class[0] for found in exploits} == set("ABCDEFGHI")
    assert {found.problem for found in entries} <= problems


def test_sample_takes_one_of_each_style_and_language():
    entries = [
        entry(name=name, language=name.rpartition(".")[2], style=style)
        for name, style in (
            ("A1_a.cpp", "A1"),
            ("A1_b.cpp", "A1"),
            ("A1_b.triton", "A1"),
            ("B6_a.cpp", "B6"),
        )
    ]
    honest = entry("honest", name="a.cpp", style="A1")
    chosen = [found.name for found in sample([*entries, honest])]
    assert chosen == ["A1_a.cpp", "A1_b.triton", "B6_a.cpp", "a.cpp"]


@pytest.mark.parametrize(
    ("kind", "fields", "style"),
    [("exploit", {}, "A1"), ("exploit", {"style": '"odd"'}, "odd"), ("honest", {}, "A1_x")],
)
def test_style_defaults_to_class_or_slug(kind, fields, style):
    if kind == "exploit":
        source = exploit(**fields)
    else:
        source = written(problem='"relu"', devices='["cpu"]', what='"Good."')
    assert read_entry("A1_x.triton.py", kind, source, PROBLEMS).style == style


def test_sample_of_our_corpus_holds_every_class():
    problems = {problem.name for problem in DirectorySuite(CORPUS / "problems").problems()}
    entries = load_entries(CORPUS, problems)
    classes = {found.exploit_class for found in entries if found.runs_on("cpu")}
    assert {found.exploit_class for found in sample(select(entries, "cpu"))} == classes
