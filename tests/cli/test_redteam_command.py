"""`kernelgym redteam` with a scripted judge: tables, JSON, exit codes, usage errors."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kernelgym.cli import redteam
from kernelgym.errors import UnsupportedLanguage
from kernelgym.redteam.corpus import CorpusEntry
from kernelgym.testing.samples import SAMPLE_KERNELS, SAMPLE_PROBLEM


def put(folder, name, verdict, **extra):
    """Write one corpus file whose verdict is scripted."""
    kind, _, file = name.partition("/")
    fields = {"problem": "sample", "what": "Does a thing.", **extra}
    if kind == "exploits":
        fields["class"] = file.partition("_")[0]
    lines = ['# devices = ["cpu"]', *(f"# {key} = {json.dumps(v)}" for key, v in fields.items())]
    path = folder / "tests" / "adversarial" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "\n".join(["# /// redteam", *lines, "# ///"])
    source = SAMPLE_KERNELS[file.rpartition(".")[2]].source
    path.write_text(f"{head}\n{source}# verdict: {verdict}\n")


@pytest.fixture
def corpus(folder):
    """A corpus on which nothing goes wrong, in the working folder."""
    problems = folder / "tests" / "adversarial" / "problems"
    problems.mkdir(parents=True)
    (problems / "sample.py").write_text(SAMPLE_PROBLEM.source)
    put(folder, "exploits/A1_stale.triton", "wrong", caught_by=["wrong"])
    put(folder, "exploits/B6_cache.cpp", "correct 1.2", accepted_if="speedup > 1.5")
    put(folder, "exploits/H20_clock.triton", "correct", open="no clock of ours")
    put(folder, "honest/good.triton", "correct")
    return folder


def test_a_clean_run_prints_a_line_per_class(run, judges, corpus):
    code, out, err = run("redteam")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["class", "exploits", "caught", "accepted", "open", "unavailable",
                                "caught", "by"]  # fmt: skip
    assert lines[1].startswith("A1") and lines[1].endswith("wrong 1")
    assert lines[2].startswith("B6") and lines[2].endswith("slow 1")
    assert lines[3].startswith("H20")
    assert "honest kernels: 1 passed, 0 refused" in out
    assert "open: H20_clock.triton (open: no clock of ours)" in out
    assert len(judges[0].judged) == 4 and judges[0].closed


def test_sample_judges_one_of_each_style(run, judges, corpus):
    put(corpus, "exploits/A1_other.triton", "wrong")
    code, _, _ = run("redteam", "--sample")
    assert code == 0 and len(judges[0].judged) == 4


@pytest.mark.parametrize(
    ("name", "verdict", "said"),
    [
        ("exploits/A2_new.triton", "correct", "accepted exploit: A2_new.triton"),
        ("honest/refused.cpp", "wrong", "refused honest kernel: refused.cpp"),
        ("honest/lost.cpp", "unavailable", "not judged: lost.cpp"),
    ],
)
def test_a_dropped_file_counts_and_fails_the_run(run, judges, corpus, name, verdict, said):
    put(corpus, name, verdict)
    code, out, _ = run("redteam")
    assert code == 1
    assert said in out
    assert "Does a thing." in out


def test_a_catch_for_another_reason_is_a_warning(run, judges, corpus):
    put(corpus, "exploits/A2_new.triton", "timeout", caught_by=["wrong"])
    code, out, _ = run("redteam")
    assert code == 0
    assert "warning: A2_new.triton was caught by timeout, not by wrong: scripted: timeout" in out


def test_only_chooses_by_name(run, judges, corpus):
    put(corpus, "honest/refused.cpp", "wrong")
    assert run("redteam", "--only", "[AB]*")[0] == 0
    assert len(judges[0].judged) == 2
    code, _, err = run("redteam", "--only", "nothing")
    assert code == 2 and "'nothing'" in err


def test_json_holds_every_verdict_and_the_machine(run, judges, corpus, tmp_path):
    put(corpus, "exploits/A2_new.triton", "correct")
    assert run("redteam", "--json", tmp_path / "out.json")[0] == 1
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["machine"]["cores"] >= 1 and report["machine"]["torch"]
    assert report["device"] == "cpu" and report["ruleset"].startswith("strict@")
    assert [row["name"] for row in report["classes"]] == ["A1", "A2", "B6", "H20", "honest"]
    results = {row["name"]: row["result"] for row in report["entries"]}
    assert results == {
        "A1_stale.triton": "caught",
        "A2_new.triton": "accepted",
        "B6_cache.cpp": "caught",
        "H20_clock.triton": "open",
        "good.triton": "passed",
    }
    assert report["entries"][0]["verdict"]["status"] == "wrong"


def test_a_timeout_changes_the_rules_and_their_label(run, judges, corpus):
    run("redteam", "--jobs-timeout", "5")
    assert judges[0].capabilities.ruleset.limits.run_s == 5.0
    run("redteam")
    assert judges[1].capabilities.ruleset.limits.run_s != 5.0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--jobs-timeout", "-1"), "--jobs-timeout takes seconds, got -1"),
        (("--corpus", "elsewhere"), "'elsewhere' holds no folder 'problems'"),
        (("--json", "no/such/folder.json"), "its folder does not exist"),
        (("--ruleset", "lax"), "unknown ruleset 'lax'"),
        (("--device", "tpu"), "tpu"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_judged(
    run, judges, corpus, options, complaint
):
    code, out, err = run("redteam", *options)
    assert (code, out) == (2, "")
    assert complaint in err and len(err.splitlines()) == 1
    assert not any(judge.judged for judge in judges)


def test_a_bad_file_is_named(run, judges, corpus):
    put(corpus, "honest/bad.cpp", "correct", open="never")
    code, _, err = run("redteam")
    assert code == 2 and "bad.cpp.py" in err and "'open'" in err


def test_entries_in_a_language_without_its_headers_are_left_out_and_told(monkeypatch, capsys):
    def lacks(language, device):
        if language != "triton":
            raise UnsupportedLanguage(f"no {language}")

    monkeypatch.setattr(redteam.judging, "check_tools", lacks)
    entries = tuple(
        CorpusEntry(f"a.{name}", "honest", "relu", name, ("cuda",), "Does a thing.", "")
        for name in ("triton", "thunderkittens")
    )
    assert redteam._judgeable(entries, "cuda:0") == entries[:1]
    said = " ".join(capsys.readouterr().out.split())
    assert said == "left out: entries in language 'thunderkittens' (1): no thunderkittens"
    with pytest.raises(UnsupportedLanguage, match="no thunderkittens"):
        redteam._judgeable(entries[1:], "cuda:0")
    compiled = dataclasses.replace(entries[1], language="cuda")
    with pytest.raises(UnsupportedLanguage, match="no cuda"):
        redteam._judgeable((entries[0], compiled), "cuda:0")
