"""`kernelgym eval`: a run from the command line, gone on with, and what it refuses."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kernelgym import devices
from kernelgym.cli import judging
from kernelgym.devices import CudaDevice
from kernelgym.errors import JudgeError
from kernelgym.judge import local, provenance
from kernelgym.records.trajectories import read_records
from kernelgym.testing import ScriptedEvaluator
from kernelgym.types import Status, Verdict
from support.chat_server import chat_server
from support.evals import lines_of

ASKED = ("eval", "--policy", "scripted", "--suite", "Synthetic", "--level", 1, "--limit", 4)


@pytest.fixture
def out(folder: Path) -> Path:
    return folder / "run"


def test_run_is_kept_and_gone_on_with(run: Any, judges: Any, out: Path) -> None:
    code, said, _ = run(*ASKED, "--samples", 2, "--device", "cpu", "--out", out)
    assert code == 0 and "8 of 8 episodes ended; 8 answers" in said
    assert {path.name for path in out.iterdir()} == {
        *("plan.json", "machine.json", "run.lock", "generations.jsonl", "verdicts.jsonl"),
        "logs.log",
        "trajectories.jsonl",
    }
    assert len(list(read_records(out / "trajectories.jsonl"))) == 8
    code, said, _ = run(*ASKED, "--samples", 3, "--out", out)
    assert code == 0 and "12 of 12 episodes ended; 4 answers (8 were on disk)" in said
    assert json.loads((out / "plan.json").read_text())["samples"] == 3
    assert all(judge.closed for judge in judges)


def test_numbers_are_written_for_tensorboard_once_the_run_has_ended(
    run: Any, judges: Any, out: Path, folder: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    asked = (*ASKED, "--samples", 2, "--out", out, "--tensorboard", folder / "curves", "--step", 40)
    code, said, _ = run(*asked, "--generate-only")
    assert code == 0 and "nothing is written to" in said and not (folder / "curves").exists()
    assert run(*asked)[0] == 0
    read = EventAccumulator(str(folder / "curves"))
    read.Reload()
    points = {name: read.Scalars(name) for name in read.Tags()["scalars"]}
    assert {"eval/pass@1", "eval/pass@2", "eval/pass@1_within", "eval/fast_0"} <= set(points)
    assert {point.step for some in points.values() for point in some} == {40}


@pytest.mark.parametrize("content", ["", "[]", '{"judges": fal'])
def test_damaged_record_of_a_machine_is_made_anew(
    content: str, run: Any, judges: Any, out: Path
) -> None:
    assert run(*ASKED, "--out", out)[0] == 0
    (out / "machine.json").write_text(content)
    assert run(*ASKED, "--out", out)[0] == 0
    assert json.loads((out / "machine.json").read_text())["judges"] is True


def test_run_without_a_folder_has_one_by_its_name(run: Any, judges: Any, folder: Path) -> None:
    assert run(*ASKED)[0] == 0
    assert (folder / "runs" / "scripted-Synthetic-L1" / "plan.json").exists()
    assert run(*ASKED, "--name", "mine")[0] == 0
    assert (folder / "runs" / "mine" / "plan.json").exists()


def test_answers_and_verdicts_come_by_two_commands(run: Any, judges: Any, out: Path) -> None:
    code, said, _ = run(*ASKED, "--generate-only", "--out", out)
    assert code == 0 and not judges and len(lines_of(out, "generations")) == 4
    assert "still need an answer or a verdict" in said
    code, said, _ = run("eval", "--judge-only", "--out", out)
    assert code == 0 and "4 of 4 episodes ended; 0 answers (4 were on disk)" in said


def test_all_devices_share_a_run_whose_plan_names_the_first(
    run: Any, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def make(device: str, ruleset: Any, workers: int, *_: Any) -> ScriptedEvaluator:
        asked.append(device)
        return ScriptedEvaluator(ruleset=ruleset, device="cuda:0", workers=4 * workers)

    monkeypatch.setattr(judging, "make_evaluator", make)
    assert run(*ASKED, "--device", "all", "--out", out)[0] == 0
    assert json.loads((out / "plan.json").read_text())["device"] == "cuda:0"
    # The same run goes on with another number of GPUs.
    assert run(*ASKED, "--samples", 2, "--device", "cuda:0", "--out", out)[0] == 0
    assert run("eval", "--judge-only", "--device", "all", "--out", out)[0] == 0
    assert asked == ["all", "cuda:0", "all"]


def test_all_devices_are_judged_on_by_the_evaluator_itself(
    run: Any, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluator is the real one; two GPUs of the driver and their workers are made up."""
    gpus = (CudaDevice("GPU", 80 << 30, (9, 0)),) * 2
    both = threading.Barrier(2, timeout=30)  # a worker waits until the other one judges, too
    judged: list[str] = []

    class Worker:
        def __init__(self, *given: Any) -> None:
            self.device = given[4]

        def judge(self, *_: Any) -> tuple[Verdict, ...]:
            both.wait()
            judged.append(self.device)
            correct = {"compiled": True, "trials": 1, "trials_passed": 1}
            return (Verdict(Status.CORRECT, **correct, device=self.device),)

        def close(self) -> None: ...

    for module in (local, provenance, devices):
        monkeypatch.setattr(module, "cuda_devices", lambda: gpus)
    monkeypatch.setattr(local, "WorkerProcess", Worker)
    code, said, _ = run(*ASKED, "--shares", 1, 0, 0, "--device", "all", "--out", out)
    assert code == 0 and "4 of 4 episodes ended" in said
    assert sorted(judged) == ["cuda:0"] * 2 + ["cuda:1"] * 2
    assert json.loads((out / "plan.json").read_text())["device"] == "cuda:0"
    found = {row["verdict"]["device"] for row in lines_of(out, "verdicts")}
    assert found == {"cuda:0", "cuda:1"}


REFUSED = {
    "no policy": (("--suite", "Synthetic"), "needs --policy"),
    "unknown policy": (
        ("--policy", "oracle"),
        "known: openai, folder, replay, scripted",
    ),
    "target": (("--policy", "scripted:x"), "takes no target"),
    "shares": (("--policy", "scripted", "--shares", 1, 2), "--shares"),
    "sum": (("--policy", "scripted", "--shares", 1, 1, 0), "sum to 1"),
    "hardware": (("--policy", "scripted", "--hardware", "{"), "(--hardware) takes JSON"),
    "unknown hardware": ((*ASKED[1:], "--hardware", "H101"), "did you mean H100?"),
    "nothing left": (("--generate-only", "--judge-only"), "exclude each other"),
    "judge alone": (("--judge-only",), "needs --out"),
    "no run": (("--judge-only", "--out", "nowhere"), "is not a run"),
    "step": (
        (*ASKED[1:], "--step", 3),
        "--step is the step of the points that --tensorboard DIR writes",
    ),
    "workers": ((*ASKED[1:], "--workers", 0), "workers must be at least 1"),
    "no kernels": (("--policy", "scripted", "--suite", "problems"), "knows kernels for the suite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line_and_exit_2(case: str, run: Any, judges: Any, folder: Path) -> None:
    (folder / "problems").mkdir()
    (folder / "problems" / "1_p.py").write_text((folder / "problem.py").read_text())
    options, said = REFUSED[case]
    code, _, error = run("eval", *options)
    assert code == 2 and said in error and error.count("\n") == 1


def test_run_of_another_plan_is_refused(run: Any, judges: Any, out: Path) -> None:
    assert run(*ASKED, "--out", out)[0] == 0
    code, _, error = run(*ASKED, "--turns", 2, "--out", out)
    assert code == 2 and "turns was 1, and 2 was asked for" in error
    code, _, error = run(*ASKED, "--shares", 1, 0, 0, "--out", out)
    assert code == 2 and "policy.shares was [0.5, 0.3, 0.2], and [1.0, 0.0, 0.0]" in error


@pytest.mark.slow
def test_run_with_the_judge_itself(run: Any, out: Path, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))
    options = ("--samples", 2, "--device", "cpu", "--out", out, "--workers", 2)
    code, said, _ = run(*ASKED, *options)
    assert code == 0 and "8 of 8 episodes ended" in said
    statuses = [row["verdict"]["status"] for row in lines_of(out, "verdicts")]
    assert "correct" in statuses and "unavailable" not in statuses


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Options of a run against a server that runs for the test."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with chat_server() as server:
        given = ("eval", "--policy", "openai", "--model", "kernel-writer", "--suite", "Synthetic")
        yield server, (*given, "--level", 1, "--limit", 2, "--endpoint", server.url)


def test_run_against_an_endpoint(run: Any, judges: Any, out: Path, remote: Any) -> None:
    server, asked = remote
    code, said, _ = run(*asked, "--price", "1,10", "--max-usd", 5, "--out", out)
    assert code == 0 and "2 of 2 episodes ended" in said and "spent 0.0" in said
    plan = json.loads((out / "plan.json").read_text())
    assert plan["policy"]["endpoint"] == server.url and plan["policy"]["model"] == "kernel-writer"
    assert all(row["usd"] > 0 for row in lines_of(out, "generations"))
    code, _, error = run(*asked, "--temperature", 0.3, "--out", out)
    assert code == 2 and "policy.temperature was null, and 0.3 was asked for" in error


def test_capped_run_is_stopped_with_a_line(run: Any, judges: Any, out: Path, remote: Any) -> None:
    _, asked = remote
    code, said, _ = run(*asked, "--price", "1,10", "--max-usd", 0.001, "--out", out)
    assert code == 1 and "(--max-usd) is 0.001; raise it to go on" in said
    assert lines_of(out, "generations") == []


def test_dry_run_asks_nothing(run: Any, judges: Any, out: Path, remote: Any) -> None:
    server, asked = remote
    code, said, _ = run(*asked, "--turns", 3, "--price", "1,10", "--dry-run", "--out", out)
    assert code == 0 and "requests: 2 to 6 (0 answers are there)" in said
    assert "USD (estimated): 0.00" in said and "missing" not in said
    assert not server.bodies and not judges and not out.exists()
    code, said, _ = run(*asked[:-2], "--device", "cuda:7", "--language", "cuda", "--dry-run")
    assert code == 1 and "missing: there is no key for https://api.openai.com/v1" in said
    assert "missing: no CUDA device" in said or "does not exist here" in said


@pytest.mark.parametrize(
    ("there", "code", "said"),
    [
        (("1", "2", "3", "4"), 0, "prepared for 4 of 4 problems"),
        (("1", "4"), 1, "`kernelgym baseline Synthetic/L1/2 Synthetic/L1/3 --device cpu"),
        (None, 1, "which baselines are prepared is not known: no device"),
    ],
)
def test_dry_run_tells_of_baselines(
    run: Any, monkeypatch: Any, there: tuple[str, ...] | None, code: int, said: str
) -> None:
    def prepared(problems: Any, rules: Any, device: str) -> frozenset[str]:
        assert rules.timing.baseline == "best" and device == "cpu"
        if there is None:
            raise JudgeError("no device")
        return frozenset(f"Synthetic/L1/{number}" for number in there)

    monkeypatch.setattr("kernelgym.judge.measuring.process.prepared_baselines", prepared)
    cpp = ("--language", "cpp", "--dry-run", "--timing-baseline", "best")
    found, told, _ = run(*ASKED, *cpp)
    assert found == code and said in " ".join(told.split())
    assert "baseline" not in run(*ASKED, *cpp, "--no-timing")[1]


def test_timing_baseline_is_part_of_the_plan(run: Any, judges: Any, out: Path) -> None:
    given = (*ASKED, "--timing-baseline", "best", "--out", out)
    assert run(*given)[0] == 0 and run(*given)[0] == 0
    assert judges[0].capabilities.ruleset.timing.baseline == "best"
    code, _, error = run(*ASKED, "--out", out)
    assert code == 2 and "ruleset was" in error
    code, _, error = run(*ASKED, "--timing-baseline", "jit", "--out", out)
    assert code == 2 and "eager, compile, best" in error


def test_ping_makes_one_request(run: Any, remote: Any, folder: Path) -> None:
    server, asked = remote
    code, said, _ = run(*asked, "--ping")
    assert code == 0 and "kernel-writer-0725 answers at" in said and len(server.bodies) == 1
    assert not (folder / "runs").exists()
    code, _, error = run(*ASKED, "--ping")
    assert code == 2 and "needs --policy openai" in error


REMOTE = {
    "price": (("--max-usd", 1), "(--max-usd) needs a price"),
    "tokenizer": (("--tokenizer", "x"), "(--tokenizer) needs a price"),
    "model": (("--model", "none"), "unknown model 'none'; known: kernel-writer, other"),
    "body": (("--extra-body", "{"), "--extra-body takes JSON"),
    "list": (("--extra-body", "[]"), "--extra-body takes a JSON object"),
    "key": (("--api-key-env", "NOT_SET"), "the variable NOT_SET is not set"),
    "url": (("--endpoint", "http://127.0.0.1:9/v1"), "no server answers at http://127.0.0.1:9/v1"),
}


@pytest.mark.parametrize("case", REMOTE)
def test_bad_endpoint_is_one_line_and_exit_2(
    case: str, run: Any, judges: Any, out: Path, remote: Any
) -> None:
    _, asked = remote
    options, said = REMOTE[case]
    code, _, error = run(*asked, *options, "--out", out)
    assert code == 2 and said in error and error.count("\n") == 1


def test_run_against_a_server_that_dies_fails_and_counts_what_was_answered(
    run: Any, judges: Any, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    answered: list[object] = []

    def reply(body: object) -> Any:
        answered.append(body)
        return "I cannot do this." if len(answered) <= 1 else (500, {})

    with chat_server(reply=reply) as server:
        given = ("--policy", "openai", "--model", "other", "--endpoint", server.url)
        asked = ("eval", "--suite", "Synthetic", "--level", 1, "--limit", 3, *given)
        limits = ("--retries", 0, "--concurrency", 1)
        code, said, _ = run(*asked, *limits, "--out", out)
    assert code == 1 and "2 episodes were cut" in said
    code, said, _ = run("report", out)
    assert code == 0 and "solved 0 of 1 answered problems; 2 not answered" in said


def test_model_that_answers_nothing_ends_with_a_line(
    run: Any, judges: Any, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with chat_server(reply=lambda body: "") as server:
        given = ("--policy", "openai", "--model", "other", "--endpoint", server.url)
        code, said, _ = run("eval", "--suite", "Synthetic", "--limit", 3, *given, "--out", out)
    assert code == 1 and "the model answered nothing to all 3 requests" in said
