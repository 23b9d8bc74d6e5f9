from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelgym.cli.index import _only_language

Run = Callable[..., tuple[int, str, str]]
ARGUMENTS = ("--corpus", "synthetic", "--language", "triton", "--out")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from kernelgym.cli import main

    out = tmp_path_factory.mktemp("indexes") / "index"
    assert main(["index", "build", *ARGUMENTS, str(out)]) == 0
    return out


def test_info_and_check_describe_an_index(built, run) -> None:
    code, out, _ = run("index", "info", str(built))
    assert code == 0 and "licence MIT" in out and "verdict correct" in out
    code, out, _ = run("index", "info", str(built), "--json")
    assert json.loads(out)["format"] == 1
    code, out, _ = run("index", "check", str(built))
    assert code == 0 and "triton:" in out and "all can be shown and found" in out


def test_query_prints_entries_and_what_is_excluded(built, run) -> None:
    asked = ("--problem", "Synthetic/L1/3", "-k", "2")
    code, out, _ = run("index", "query", str(built), *asked, "--json")
    said = json.loads(out)
    assert code == 0 and len(said["entries"]) == 2 and said["excluded"]["id"] == 1
    assert said["entries"][0]["score"] >= said["entries"][1]["score"]
    code, out, _ = run("index", "query", str(built), *asked)
    assert code == 0 and out.count("class ModelNew") == 2
    code, out, _ = run("index", "query", "synthetic", *asked, "--json")
    assert code == 0 and len(json.loads(out)["entries"]) == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("build", "--out", "/tmp/x"), "give at least one --corpus"),
        (("build", "--corpus", "synthetik", "--out", "/tmp/x"), "did you mean synthetic"),
        (("build", "--corpus", "synthetic", "--model", "/no/model", "--out", "x"), "is not there"),
        (("build", "--corpus", "synthetic", "--language", "c", "--out", "x"), "unknown language"),
        (("build", "--corpus", "synthetic", "--hold-out", "Sinthetic", "--out", "x"), "suite"),
        (("build", "--corpus", "synthetic", "--verify-minutes", "0", "--out", "x"), "above 0"),
        (("build", "--corpus", "synthetic", "-k", "0", "--out", "x"), "at least 1"),
        (("bild",), "did you mean index build"),
        (("info", "/no/such/index"), "is not an index"),
        (("check", "/no/such/index"), "is not an index"),
        (("query", "/no/such", "--problem", "Synthetic/L1/1"), "is not an index"),
        (("query", "synthetic", "--problem", "Synthetic/L1/1", "--kk", "3"), "did you mean --k"),
        (("query", "synthetic", "--problem", "Synthetic/L1/1", "-k", "0"), "at least 1"),
    ],
)
def test_bad_input_is_a_usage_error(run, arguments, error) -> None:
    code, _, err = run("index", *arguments)
    assert code == 2 and error in err and err.count("\n") == 1


def test_index_alone_prints_help(run) -> None:
    code, out, _ = run("index")
    assert code == 0 and "index build" in out


def test_query_takes_the_only_language_of_an_index(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    assert _only_language(str(tmp_path)) == "cuda"
    (tmp_path / "triton").mkdir()
    assert _only_language(str(tmp_path)) == _only_language("synthetic") == "triton"


@pytest.mark.parametrize("language", [(), ("--language", "cuda")])
def test_build_of_cuda_kernels_without_a_gpu_names_the_options(
    language: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    out = ("--out", str(tmp_path / "index"))
    code, _, error = run("index", "build", "--corpus", "sakana", *language, *out)
    assert code == 2 and "give --no-verify and --include-unverified" in error
    assert error.count("\n") == 1 and not (tmp_path / "index").exists()
