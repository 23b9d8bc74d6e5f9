"""A search that asks a model at a local server: answers, faults, caps, repairs and resumption."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kernelgym.records.run_logs import tell
from kernelgym.testing import verdict
from kernelgym.types import Kernel, Problem, Verdict
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.folders import search_folder
from kernelgym_train.mcgs.writing.writer import KernelWriter
from support import searches, writers
from support.chat_server import Faults, chat_server
from support.writers import (
    Script,
    answers,
    client,
    flag_line,
    new_flags,
    o3,
    priced,
    replace,
    run,
    shown,
)


def test_answer_is_judged_and_its_patch_is_the_diff(tmp_path: Path) -> None:
    with chat_server(reply=Script(o3, "nothing more")) as server:
        result = run(tmp_path, priced(client(server)), builds=3)
    (first, *_) = answers(tmp_path)
    assert first["outcome"] == "proposed" and first["usd"] > 0.0 and first["tokens"] > 100
    proposed = next(row for row in searches.rows(tmp_path) if row.get("answer"))
    assert proposed["move"].startswith("written:") and proposed["predicted_gain"] == 0.5
    variant = tmp_path / writers.FOLDER / "variants" / proposed["key"]
    start = tmp_path / "kernel_module.py"
    start.write_text(searches.TASK.start.source)
    subprocess.run(["git", "apply", str(variant / "candidate.diff")], cwd=tmp_path, check=True)
    assert start.read_text() == (variant / "kernel_module.py").read_text()
    told = result["writer"]
    assert told["outcomes"]["proposed"] >= 1 and told["usd"] > 0.0
    assert told["prediction"]["count"] == 1 and told["prediction"]["bias"] > 0.0


def equal(problem: Problem, kernel: Kernel) -> Verdict:
    """Judge every kernel as fast as the start."""
    return verdict("correct", speedup=0.5)


def test_prompt_tells_the_parent_and_what_was_tried(tmp_path: Path) -> None:
    with chat_server(reply=new_flags()) as server:
        run(tmp_path, client(server), writers.evaluator(equal), builds=8)
        texts = [writers.prompt(body) for body in server.bodies]
        systems = {body["messages"][0]["content"] for body in server.bodies}
    assert len(texts) >= 3 and len(systems) == 1
    assert "get_inputs" in texts[0] and "of the reference's speed" in texts[0]
    assert "Make it faster by this move: `" in texts[0] and "<<<<<<< SEARCH" in texts[0]
    assert "# What was tried" not in texts[0]
    assert any("answer 0: other flags" in text and "times as fast" in text for text in texts[1:])
    assert all(len(body["messages"]) == 2 for body in server.bodies), "a fresh session a request"


def test_malformed_answers_are_told_and_repaired(tmp_path: Path) -> None:
    wrong = replace("a line that is not there", "x")
    with chat_server(reply=Script(wrong, o3, "I do not know.", o3)) as server:
        run(tmp_path, client(server), builds=5)
        repair = writers.prompt(server.bodies[1])
    first, second, third, *_ = answers(tmp_path)
    assert (first["outcome"], first["fault"]) == ("refused", "not_found")
    assert second["outcome"] == "proposed"
    assert (third["outcome"], third["fault"]) == ("refused", "no_answer")
    assert "# What went wrong" in repair and "do not stand in the kernel" in repair
    assert "a line that is not there" in repair
    asked = [row for row in searches.rows(tmp_path) if row["event"] == "asked"]
    assert asked[1]["repairs"] == 0


def test_wrong_kernel_is_repaired_with_its_feedback(tmp_path: Path) -> None:
    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        if "-DN=0" in kernel.source:
            return verdict("compile_error", message="error: no such thing as N")
        return searches.judged(problem, kernel)

    with chat_server(reply=new_flags()) as server:
        run(tmp_path, client(server), writers.evaluator(judged), builds=6, workers=1)
        texts = [writers.prompt(body) for body in server.bodies]
    (repair,) = [text for text in texts if "# What went wrong" in text]
    assert "no such thing as N" in repair and "-DN=0" in repair.split("# The change to make")[0]


def test_truncated_answer_is_refused(tmp_path: Path) -> None:
    cut = {"role": "assistant", "content": replace("x", "y"), "finish_reason": "length"}
    with chat_server(reply=lambda body: dict(cut)) as server:
        run(tmp_path, client(server), builds=3)
    assert {each["fault"] for each in answers(tmp_path)} == {"cut_off"}


def test_known_kernel_is_refused_before_it_is_judged(tmp_path: Path) -> None:
    judge = writers.evaluator()
    source = searches.TASK.start.source.replace('"-O2"', '"-O3"')
    whole = f"<KERNEL>\n```python\n{source}```\n</KERNEL>"
    with chat_server(reply=Script(whole)) as server:
        run(tmp_path, client(server), judge, builds=6)
    found = [each["outcome"] for each in answers(tmp_path)]
    assert found.count("proposed") == 1 and found.count("repeated") >= 1
    judged = [row for row in searches.rows(tmp_path) if row["event"] == "judged"]
    assert len({row["key"] for row in judged}) == len(judged) == 6


def test_weak_prediction_is_not_judged(tmp_path: Path) -> None:
    def weak(body: Mapping[str, Any]) -> str:
        line = flag_line(shown(body))
        return replace(line, line.replace('"-O2"', '"-O3"'), gain="1 %")

    with chat_server(reply=Script(weak)) as server:
        run(tmp_path, client(server), budget=Budget(3, min_pred_gain=0.02))
    assert answers(tmp_path)[0]["outcome"] == "pruned"


def test_busy_and_broken_server_is_asked_again(tmp_path: Path) -> None:
    faults = Faults(busy=0.3, broken=0.1, dropped=0.1)
    with chat_server(faults, reply=new_flags()) as server:
        result = run(tmp_path, priced(client(server, retries=6)), builds=8, workers=2)
        what = {said for _, said in server.log}
    assert {"busy", "answered"} <= what
    assert result["evaluations"] == 8 and not result["writer"]["outcomes"].get("failed")


def test_server_that_dies_leaves_the_rules(tmp_path: Path) -> None:
    """Five requests without an answer, and the writer is asked no more."""

    gone = (503, {"error": {"message": "gone"}})

    lines: list[str] = []
    with chat_server(reply=Script(o3, gone)) as server:
        policy = client(server, retries=0)
        result = run(tmp_path, policy, builds=30, say=lines.append)
        asked = len(server.bodies)
    outcomes = [each["outcome"] for each in answers(tmp_path)]
    assert outcomes == ["proposed"] + ["failed"] * 5 and asked == 6
    assert "5 requests in a row had no answer" in result["writer"]["closed"]
    assert any("no more kernels are asked for" in line for line in lines)
    assert result["evaluations"] == 30 and result["best"]["diff"], "the rules went on"


def test_cap_is_met_in_the_middle_and_no_request_goes_beyond(tmp_path: Path) -> None:
    with chat_server(reply=new_flags()) as server:
        policy = priced(client(server), usd=0.02)
        result = run(tmp_path, policy, builds=25)
        made = len(server.bodies)
        assert policy.cap.spent <= 0.02 and policy.cap.reserved == 0.0
    told = result["writer"]
    assert "max_usd (--max-usd) is 0.02; raise it" in told["closed"]
    assert 0 < told["usd"] <= 0.02 and made == told["outcomes"]["proposed"]
    assert result["evaluations"] == 25, "no result is lost"
    spent = [each["usd"] for each in answers(tmp_path) if each.get("usd")]
    assert told["usd"] == pytest.approx(sum(spent))


def test_cap_on_tokens_needs_no_price(tmp_path: Path) -> None:
    with chat_server(reply=new_flags()) as server:
        policy = priced(client(server), tokens=14_000)
        result = run(tmp_path, policy, builds=20)
    assert "llm_tokens is 14000; raise it to go on" in result["writer"]["closed"]
    assert 0 < result["writer"]["tokens"] <= 14_000


def test_responses_api_is_asked(tmp_path: Path) -> None:
    with chat_server(reply=new_flags()) as server:
        result = run(tmp_path, client(server, api="responses"), builds=3)
        assert all("max_output_tokens" in body for body in server.bodies)
    assert result["writer"]["outcomes"]["proposed"] >= 1


def test_answer_on_the_disk_costs_nothing(tmp_path: Path) -> None:
    cache = {"cache": tmp_path / "cache"}
    with chat_server(reply=Script(o3, "no")) as server:
        run(tmp_path / "one", priced(client(server)), builds=2, writer=cache)
        made = len(server.bodies)
        result = run(tmp_path / "two", priced(client(server)), builds=2, writer=cache)
        assert len(server.bodies) == made
    assert result["writer"]["cached"] == result["writer"]["requests"] > 0
    assert result["writer"]["usd"] == 0.0 and result["writer"]["tokens"] == 0


def test_killed_search_asks_the_lost_request_again(tmp_path: Path) -> None:
    """The lost request counts at its worst case."""

    class Killed(BaseException):
        pass

    with chat_server(reply=o3, delay_s=0.3) as server:

        def watch(state: Any) -> None:
            if len(state.asks.open) == 1:
                raise Killed

        with pytest.raises(Killed):
            run(tmp_path, priced(client(server)), watch=watch)
        before = searches.rows(tmp_path)[-1]
        assert before["event"] == "asked"
        result = run(tmp_path, priced(client(server)), resume=True, builds=4)
    again = [row for row in searches.rows(tmp_path) if row["event"] == "asked" and row["ask"] == 0]
    assert len(again) == 2
    assert result["writer"]["usd"] > before["worst_usd"] > 0.0
    assert result["evaluations"] == 4


def test_raised_cap_lets_an_ended_search_go_on(tmp_path: Path) -> None:
    """A writer without rules: the search ends where its cap does."""
    only = {"moves": ("unroll",), "budget": Budget(60)}
    with chat_server(reply=new_flags()) as server:
        first = run(tmp_path, priced(client(server), usd=0.02), **only)
        assert first["stopped"] == "writer_closed" and first["evaluations"] < 60
        second = run(tmp_path, priced(client(server), usd=0.04), resume=True, **only)
    assert second["evaluations"] > first["evaluations"]
    assert second["writer"]["usd"] <= 0.04


def test_limit_of_time_gives_a_request_up(tmp_path: Path) -> None:
    with chat_server(Faults(stalled=1.0, stall_s=60.0)) as server:
        policy, judge = client(server, timeout_s=60.0), searches.evaluator()
        result = run(tmp_path, policy, judge, budget=Budget(500, seconds=2.5))
    assert result["stopped"] == "seconds" and result["seconds"] < 30.0
    assert result["writer"]["outcomes"]["failed"] == 1


def test_kernels_of_a_folder_share_one_cap(tmp_path: Path) -> None:
    tasks = [dataclasses.replace(searches.TASK, name=name) for name in ("a", "b")]
    with (
        chat_server(reply=new_flags()) as server,
        KernelWriter(priced(client(server), usd=0.02)) as writer,
    ):
        config = SearchConfig(
            Budget(20, min_pred_gain=0.0), algo="best_first", writer=writer, moves=writers.DULL
        )
        for resume in (False, True):
            budget = Budget(26 if resume else 20, min_pred_gain=0.0)
            found = search_folder(
                tasks,
                lambda task: writers.evaluator(),
                tmp_path,
                dataclasses.replace(config, budget=budget),
                resume=resume,
            )
            spent = sum(
                (each["writer"] or {"usd": 0.0})["usd"] for each in found["kernels"].values()
            )
            assert not found["failed"] and found["evaluations"] == budget.builds
            assert 0.0 < spent <= 0.02
            cap = writer.policy.cap  # type: ignore[attr-defined]
            assert cap.spent == pytest.approx(spent)


@pytest.mark.parametrize("sign", ["\x1b[2J", "\ud800", "\u202e", "\x00"])
def test_signs_that_no_file_holds_or_terminal_shows_end_no_search(
    tmp_path: Path, sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(body: Mapping[str, Any]) -> str:
        line = flag_line(shown(body))
        return replace(line, line.replace("-O2", "-O3"), summary=f"other{sign} flags")

    with chat_server(reply=reply) as server:
        result = run(tmp_path, client(server), builds=3, say=tell)
    assert result["writer"]["outcomes"]["proposed"]
    told = (tmp_path / writers.FOLDER / "trace.md").read_text("utf-8") + capsys.readouterr().err
    assert "flags" in told and sign not in told


@pytest.mark.parametrize("sign", ["\x1b[2J", "\ud800", "\x9b"])
def test_a_told_line_has_no_control_characters(
    sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(f"runtime_error: {sign}x")
    assert sign not in (told := capsys.readouterr().err) and "x" in told
