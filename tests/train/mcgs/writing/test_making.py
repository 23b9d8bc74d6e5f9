"""Writers that a command's settings name: bad input in one line, commands, and replay."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError
from kernelgym.benchmark.run.policies import ProviderFailure
from kernelgym.types import Message
from kernelgym_train.cli import main
from kernelgym_train.mcgs import command
from kernelgym_train.mcgs.settings import read_search_settings
from kernelgym_train.mcgs.writing.making import make_writer
from kernelgym_train.mcgs.writing.policies import CommandPolicy, SearchReplayPolicy
from kernelgym_train.mcgs.writing.writer import WriterRequest
from support import searches, tiny, writers
from support.chat_server import chat_server
from support.writers import new_flags

MATMUL = ("--backend", "mcgs", "input=example:matmul", "algo=best_first")
"""Arguments of a search of the matmul example."""


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have a table judge, without keys and addresses of this machine."""
    monkeypatch.setattr(command, "LocalEvaluator", lambda **_: writers.evaluator())
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def silent() -> Iterator[str]:
    """Run a server that takes connections and never answers; returns its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def script(path: Path, text: str) -> str:
    """Write an executable script; return the setting that names it."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"proposer=command:{path}"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["llm_model=m"], "there is no key for https://api.openai.com/v1"),
        (["llm_model=m", "llm_endpoint=http://127.0.0.1:9/v1"], "check --llm-endpoint"),
        (["llm_model=m", "llm_endpoint=localhost"], "--llm-endpoint takes the address of an API"),
        (
            ["llm_model=m", "llm_endpoint=http://127.0.0.1:9/v1", "max_usd=2"],
            "max_usd (--max-usd) needs a price",
        ),
        (["llm_model=m", "llm_endpoint=http://h/v1", "llm_tokens=0"], "llm_tokens takes tokens"),
        (["llm_model=m", "proposer=command:x"], "two writers of kernels; give one"),
        (["proposer=command:"], "needs a command"),
        (["proposer=command:'x"], "No closing quotation"),
        (["proposer=command:no-such-command"], "there is no command 'no-such-command'"),
        (["proposer=replay:nowhere"], "holds no answers of a search"),
        (["proposer=oracle"], "unknown policy 'oracle'"),
        (["proposer=command:cat", "price=1,2"], "costs nothing by the token"),
        (["free_moves=true"], "free_moves=True is for a model"),
        (["llm_repairs=-1"], "llm_repairs"),
    ],
)
def test_bad_writer_is_one_line(
    given: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MATMUL, f"outdir={tmp_path / 'x'}", *given]) == 2
    said = capsys.readouterr()
    assert complaint in said.err and said.err.count("\n") == 1 and not said.out
    assert not (tmp_path / "x").exists()


def test_silent_server_is_refused_within_ten_seconds(
    silent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert main([*MATMUL, f"outdir={tmp_path / 'x'}", "llm_model=m", f"llm_endpoint={silent}"]) == 2
    assert time.monotonic() - began < 10.0
    assert "no server answers" in capsys.readouterr().err


def test_address_and_key_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The key is sent to the server, and is in no file."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123")
    out = tmp_path / "out"
    with chat_server(reply=new_flags()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        given = ["llm_model=kernel-writer", "price=1,10", "max_usd=1", "budget_builds=4"]
        assert main([*MATMUL, f"outdir={out}", *given]) == 0
        assert {each["authorization"] for each in server.headers} == {"Bearer sk-secret-0123"}
    assert json.loads((out / "result.json").read_text())["writer"]["usd"] > 0.0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if b"sk-secret" in path.read_bytes()]


def test_no_llm_searches_by_rules_alone(tmp_path: Path) -> None:
    settings = read_search_settings(["llm_model=m", "no_llm=true"])
    assert make_writer(settings) is None


def test_command_gets_the_parent_and_its_answer_is_judged(tmp_path: Path) -> None:
    """``sed`` on the standard input is a writer of whole modules."""
    given = script(
        tmp_path / "faster.sh",
        'echo "GAIN: 0.4"; echo "SUMMARY: $KERNELGYM_MOVE in $KERNELGYM_LANGUAGE"\n'
        'test -s "$KERNELGYM_PROMPT" || exit 3\n'
        'fence="\\`\\`\\`"\n'
        'echo "<KERNEL>"; echo "${fence}python"; sed s/-O2/-O3/; echo "$fence"; echo "</KERNEL>"',
    )
    out = tmp_path / "out"
    assert main([*MATMUL, f"outdir={out}", given, "budget_builds=4", "moves=[unroll]"]) == 0
    first = writers.answers(out)[0]
    assert first["outcome"] == "proposed" and first["summary"] == "unroll in cpp"
    assert json.loads((out / "result.json").read_text())["speedup"] > 1.05


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sleep 60 & sleep 60", "no answer within 0.5 s"),
        ("echo broken >&2; exit 3", "the command ended with 3: broken"),
    ],
)
def test_command_that_hangs_or_fails_leaves_the_rules(
    text: str, complaint: str, tmp_path: Path
) -> None:
    given = [script(tmp_path / "bad.sh", text), "llm_timeout_s=0.5", "budget_builds=30"]
    out = tmp_path / "out"
    assert main([*MATMUL, f"outdir={out}", *given, "moves=[unroll, compiler_flags]"]) == 0
    result = json.loads((out / "result.json").read_text())
    assert complaint in result["writer"]["closed"]
    assert set(result["writer"]["outcomes"]) == {"failed"} and result["speedup"] > 1.05


def ask_command(text: str, folder: Path, facts: dict[str, str]) -> str:
    """Return the answer of a shell script."""
    policy = CommandPolicy(script(folder / "asked.sh", text).partition(":")[2], timeout_s=10.0)
    task = searches.TASK
    said = (Message("user", "?"),)
    asked = WriterRequest(task.problem, 0, 0, said, 0, parent=task.start, facts=facts)
    return asyncio.run(policy.answer(asked)).text


@pytest.mark.parametrize("stop", ["sleep 60", "setsid yes", "yes >&2"])
def test_command_that_prints_too_much_is_not_read_on(stop: str, tmp_path: Path) -> None:
    with pytest.raises(ProviderFailure, match="printed more than 4 MiB"):
        ask_command(f"head -c 8000000 /dev/zero; {stop}", tmp_path, {})


def test_command_is_told_a_failure_with_any_characters(tmp_path: Path) -> None:
    shown = 'cat >/dev/null; printf %s "$KERNELGYM_FAILURE"'
    assert ask_command(shown, tmp_path, {"FAILURE": "a\0b"}) == "a\N{REPLACEMENT CHARACTER}b"


def test_command_may_print_many_errors_and_read_no_kernel(tmp_path: Path) -> None:
    assert ask_command("head -c 8000000 /dev/zero >&2; echo made", tmp_path, {}) == "made\n"


def test_replayed_search_gets_the_same_answers(tmp_path: Path) -> None:
    with chat_server(reply=new_flags()) as server:
        writers.run(tmp_path / "one", writers.client(server), builds=6)
    writers.run(tmp_path / "two", SearchReplayPolicy(tmp_path / "one"), builds=6)
    one, two = (
        [each["answer"]["text"] for each in writers.requests(tmp_path / name) if each["answer"]]
        for name in ("one", "two")
    )
    least = min(len(one), len(two))
    assert least >= 2 and one[:least] == two[:least]
    assert "proposed" in {each["outcome"] for each in writers.answers(tmp_path / "two")}


def test_replay_of_several_kernels_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "kernels" / name / "answers").mkdir(parents=True)
        (tmp_path / "kernels" / name / "answers" / "0000.json").write_text("{}")
    with pytest.raises(UsageError, match="several kernels; give the folder of one"):
        SearchReplayPolicy(tmp_path)


def test_command_is_named_in_settings() -> None:
    found: dict[str, Any] = dict(CommandPolicy("python3 'a b.py'").settings)
    assert found["command"] == ["python3", "a b.py"]


@pytest.mark.usefixtures("one_thread")
def test_trained_policy_is_a_writer(tmp_path: Path) -> None:
    """A model of two layers writes no kernel; each of its answers is refused and counted."""
    saved, out = tmp_path / "model", tmp_path / "out"
    words = tiny.tokenizer()
    tiny.model(len(words)).save_pretrained(saved)
    words.save_pretrained(saved)
    given = [f"proposer=hf:{saved}", "llm_max_tokens=8", "llm_tokens=100000", "llm_repairs=0"]
    assert main([*MATMUL, f"outdir={out}", *given, "budget_builds=3", "moves=[unroll]"]) == 0
    told = json.loads((out / "result.json").read_text())["writer"]
    assert told["outcomes"]["refused"] >= 1 and told["usd"] is None
    assert 0 < told["tokens"] < 100000
