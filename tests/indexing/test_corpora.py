from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path

import datasets
import pytest

from kernelgym.answers.parsing import parse
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.recording import RecordTrajectories
from kernelgym.errors import UsageError
from kernelgym.indexing import rows as rows_module
from kernelgym.indexing.archives import LeftOut, kernelbook_entry, sakana_entry
from kernelgym.indexing.corpora import Corpus, corpus_of, read_corpus
from kernelgym.indexing.rows import file_rows, hub_rows
from kernelgym.indexing.sources import positional_inputs, with_names, without_functions
from kernelgym.retrieval.entry import IndexEntry, unusable
from kernelgym.suites import get_problem
from kernelgym.suites.base import check_source
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator, reply, verdict
from kernelgym.types import Kernel, Verdict
from support.archive_rows import kernelbook_row, sakana_row


def write(path: Path, rows: list[dict]) -> Path:
    if path.suffix == ".parquet":
        datasets.Dataset.from_list(rows).to_parquet(str(path))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def entries_of(corpus: Corpus, languages: tuple[str, ...] = ()) -> list[IndexEntry | LeftOut]:
    return list(read_corpus(corpus, languages, "cpu"))


def test_kernelbook_row_obeys_the_contract() -> None:
    entry = kernelbook_entry(kernelbook_row())
    assert isinstance(entry, IndexEntry) and not unusable(entry)
    check_source(entry.reference, "the entry")
    assert "return [3.0]" in entry.reference and "super(Model, self)" in entry.reference
    assert '"""Scaler scales."""' in entry.reference  # texts stay
    assert "class ModelNew(nn.Module)" in entry.kernel and "Scaler" not in entry.kernel
    assert (entry.problem_id, entry.licence) == ("KernelBook/17", "MIT")
    assert entry.provenance == "https://example.org/somebody/some@abc123"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("[], {}", "[]"),
        ("[2.0], {}", "[2.0]"),
        ("[2.0], {'bias': 1.0}", "[2.0, 1.0]"),
        ("[], {'bias': 1.0, 'factor': (2, 3)}", "[(2, 3), 1.0]"),
        ("[], {'bias': 1.0}", None),
        ("[], {'other': 1.0}", None),
        ("[], make()", None),
        ("1, 2, 3", None),
    ],
)
def test_init_inputs_become_positional(given, expected) -> None:
    source = kernelbook_row(given=given)["python_code"]
    found = positional_inputs(source, "Scaler")
    assert (found is None) == (expected is None)
    if found is not None:
        assert f"return {expected}\n" in found


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"triton_code": "from torch._inductor import x\nclass ScalerNew: ..."}, "inductor"),
        ({"triton_code": "extern_kernels.mm(a, b)\nclass ScalerNew: ..."}, "inductor"),
        ({"python_code": "from _paritybench_helpers import _mock_config"}, "helpers"),
        ({"entry_point": "Absent"}, "names"),
        ({"python_code": kernelbook_row()["python_code"] + "\nclass Model: ...\n"}, "names"),
        ({"triton_code": "class Other: ..."}, "names"),
        ({"python_code": "def f(:"}, "names"),
        ({"python_code": None}, "names"),
    ],
)
def test_kernelbook_row_is_left_out_with_a_reason(change, reason) -> None:
    found = kernelbook_entry(kernelbook_row() | change)
    assert isinstance(found, LeftOut) and found.reason == reason


def test_sakana_row_becomes_a_module_of_our_contract() -> None:
    entry = sakana_entry(sakana_row())
    assert isinstance(entry, IndexEntry) and not unusable(entry)
    assert (entry.problem_id, entry.name, entry.language) == (
        "KernelBench/L1/19",
        "19_ReLU",
        "cuda",
    )
    tree = ast.parse(entry.kernel)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert classes == ["ModelNew"] and functions == []
    assert "PYBIND11_MODULE" in entry.kernel and "150" not in entry.kernel
    read = parse(reply(Kernel(entry.kernel, "cuda")), "cuda")
    assert read.kernel is not None and not read.defects


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"Correct": False}, "claimed_wrong"),
        ({"Correct": None}, "claimed_wrong"),
        ({"Correct": "yes"}, "claimed_wrong"),
        ({"PyTorch_Code_Functional": "def f(:"}, "names"),
        ({"CUDA_Code": "'''" + '"""'}, "unreadable"),
        ({"CUDA_Code": "int x; \\"}, "unreadable"),
    ],
)
def test_sakana_row_is_left_out_with_a_reason(change, reason) -> None:
    found = sakana_entry(sakana_row() | change)
    assert isinstance(found, LeftOut) and found.reason == reason


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_archives_are_read_from_files(tmp_path, suffix) -> None:
    book = write(tmp_path / f"book{suffix}", [kernelbook_row(), kernelbook_row(entry_point="No")])
    found = entries_of(corpus_of(f"kernelbook:{book}"))
    assert [type(each) for each in found] == [IndexEntry, LeftOut]
    rows = [sakana_row(Correct=False), sakana_row(3, Level_ID=2)]
    archive = write(tmp_path / f"sakana{suffix}", rows)
    found = entries_of(corpus_of(f"sakana:{archive}"))
    assert [getattr(each, "reason", "") for each in found] == ["claimed_wrong", ""]
    other = write(tmp_path / f"other{suffix}", [{"code": "x"}])
    with pytest.raises(UsageError, match=r"lacks the columns python_code, .*; it has code"):
        entries_of(corpus_of(f"kernelbook:{other}"))


def test_own_rows_are_entries_that_are_not_believed(tmp_path) -> None:
    row = {"reference": SAMPLE_PROBLEM.source, "kernel": SAMPLE_KERNELS["triton"].source}
    more = row | {"language": "cpp", "licence": "BSD", "verdict": "correct", "origin": "mine"}
    path = write(tmp_path / "mine.jsonl", [row | dict.fromkeys(set(more) - set(row)), more])
    first, second = entries_of(corpus_of(str(path)), languages=("triton",))
    assert isinstance(first, IndexEntry) and first.verdict == "not judged"
    assert (first.language, first.origin) == ("triton", "mine.jsonl")
    assert isinstance(second, LeftOut) and second.reason == "language"
    with pytest.raises(UsageError, match=r"unknown language ''.*row 1 of"):
        entries_of(corpus_of(str(path)))


def timed(speedup: float) -> Verdict:
    given = verdict("correct", speedup=speedup)
    assert given.timing is not None
    timing = dataclasses.replace(given.timing, speedup_high=1.05 * speedup)
    return dataclasses.replace(given, timing=timing)


def played(path: Path) -> Path:
    """Play an episode: wrong, then correct twice, the second time faster."""
    problem = get_problem("Synthetic/L2/4")
    wrong = broken_variants(problem)[0].kernel
    right = [solve(problem, style_seed=seed) for seed in (0, 7)]
    script = [verdict("wrong", message="far off"), timed(1.0), timed(3.0)]
    env = KernelEnv(
        "Synthetic",
        2,
        evaluator=ScriptedEvaluator(script),
        problems=[problem],
        stop_when="never",
    )
    recorder = RecordTrajectories(env, path)
    recorder.reset(seed=1)
    for kernel in (wrong, *right):
        recorder.step(reply(kernel))
    recorder.step("no kernel")
    recorder.close()
    return path


def test_trajectories_give_their_correct_kernels(tmp_path) -> None:
    path = played(tmp_path / "episodes.jsonl")
    found = entries_of(corpus_of(f"trajectories:{path}"))
    assert all(isinstance(each, IndexEntry) for each in found)
    assert [each.speed[0] for each in found] == [3.0, 1.0]  # the fastest first
    assert {each.verdict for each in found} == {"correct"}
    assert found[0].ruleset.startswith("strict@") and found[0].form and found[0].device


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("kernelbok", "unknown corpus 'kernelbok'; did you mean kernelbook"),
        ("trajectories", "needs a file of episodes"),
        ("trajectories:/no/such", "which is not there"),
        ("sakana:/no/such", "which is not there"),
        ("synthetic:/tmp", "takes no path"),
        ("kernelbook@v2:/tmp", "a corpus that is a file has no revision"),
    ],
)
def test_bad_corpus_is_refused(text, error) -> None:
    with pytest.raises(UsageError, match=error):
        corpus_of(text)


def test_corpus_names_its_pinned_revision() -> None:
    assert str(corpus_of("kernelbook")).startswith("kernelbook@1576375b")
    assert corpus_of("kernelbook@main").revision == "main"
    assert str(corpus_of("sakana:/tmp")) == "sakana:/tmp"


def test_unreachable_hub_is_said(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(rows_module, "ask_hub", lambda *_: "no answer within 8 s")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(UsageError, match=r"'a/b' cannot be had: the hub says no answer within 8 s"):
        list(hub_rows("a/b", "", ("train",)))


def test_files_that_are_no_rows_are_refused(tmp_path) -> None:
    with pytest.raises(UsageError, match="is not a file of rows"):
        list(file_rows(tmp_path))
    (tmp_path / "x.parquet").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match="cannot be read"):
        list(file_rows(tmp_path))


def test_edits_leave_the_rest_as_it_is() -> None:
    source = "import A\n# A stays\nx = 'A' + A.A\ndef f(A):\n    return [A]\n"
    assert with_names(source, {"A": "Bcd"}) == (
        "import Bcd\n# A stays\nx = 'A' + Bcd.Bcd\ndef f(Bcd):\n    return [Bcd]\n"
    )
    assert with_names("x = (", {}) is None
    assert without_functions(source, ("f",)) == "import A\n# A stays\nx = 'A' + A.A\n"
    assert without_functions("def f(:", ()) is None
