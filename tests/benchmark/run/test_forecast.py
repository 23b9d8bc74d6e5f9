"""What a run will take: exact counts, bounds that hold, figures from the project's own files."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from kernelgym.benchmark import evaluate
from kernelgym.benchmark.run.driver import EvalSummary
from kernelgym.benchmark.run.forecast import RunForecast, forecast, verdict_seconds
from kernelgym.benchmark.run.plan_from_options import EvalTask, resolve
from kernelgym.prices import Price
from kernelgym.testing import ScriptedEvaluator
from support.evals import CountedPolicy, by_digest, lines_of

ROOT = Path(__file__).parents[3]
TASK: dict[str, Any] = {"suite": "Synthetic", "level": 1, "limit": 3, "samples": 2, "turns": 3}
PRICE = Price(1.0, 10.0)


def look(folder: Path, **options: Any) -> RunForecast:
    plan, problems = resolve(EvalTask(**TASK), CountedPolicy().settings)
    return forecast(plan, problems, folder, plan.observer(), **options)


def run(folder: Path, **options: Any) -> EvalSummary:
    judge = ScriptedEvaluator(by_digest)
    return evaluate(CountedPolicy(), out=folder, evaluator=judge, **(TASK | options))


def test_fresh_run_is_counted_by_hand(tmp_path: Path) -> None:
    found = look(tmp_path, price=PRICE, max_tokens=100)
    assert (found.least_requests, found.most_requests, found.answers_there) == (6, 18, 0)
    assert found.most_answer_tokens == 1800
    later = (6 * 2) * (6000 + 500) + 2 * found.first_tokens
    assert found.most_prompt_tokens == found.first_tokens + later
    assert found.least_usd == pytest.approx(found.first_tokens / 1e6)
    assert found.most_usd == pytest.approx((found.most_prompt_tokens + 10 * 1800) / 1e6)
    assert found.judge_s == pytest.approx(18 * 0.077) and "judge_cpu.json" in found.judge_source
    assert found.most_judge_s == 18 * (120 + 60 + 6)


def test_forecast_of_a_shorter_run_limit_bounds_the_judge(tmp_path: Path) -> None:
    plan, problems = resolve(EvalTask(**TASK, run_seconds=5), CountedPolicy().settings)
    assert plan.rules.limits.run_s == 5 and plan.ruleset.startswith("strict+run(5.0s)@")
    found = forecast(plan, problems, tmp_path, plan.observer())
    assert found.most_judge_s == 18 * (120 + 5 + 6)
    assert any("at most 39.3 minutes" in line and "5 s to run" in line for line in found.lines())


def test_bounds_hold_for_what_is_played(tmp_path: Path) -> None:
    before = look(tmp_path)
    done = run(tmp_path)
    assert before.least_requests <= done.answers <= before.most_requests
    after = look(tmp_path)
    assert after.most_requests == 0 and after.answers_there == done.answers
    assert after.most_prompt_tokens == after.first_tokens == 0


def test_half_a_run_needs_the_rest(tmp_path: Path) -> None:
    run(tmp_path, samples=1)
    found = look(tmp_path)
    assert (found.least_requests, found.most_requests) == (3, 9)
    assert found.answers_there == len(lines_of(tmp_path, "generations"))


def test_lines_say_what_is_estimated(tmp_path: Path) -> None:
    lines = list(look(tmp_path, price=PRICE, max_tokens=100).lines())
    assert lines[0] == "requests: 6 to 18 (0 answers are there)"
    assert all("estimated" in lines[place] for place in (1, 2, 4))
    assert any("not known without --price" in line for line in look(tmp_path).lines())


def test_recorded_times_are_those_of_the_files() -> None:
    cpu = json.loads((ROOT / verdict_seconds()["cpu", "triton"][1]).read_text())
    gpu = json.loads((ROOT / verdict_seconds()["cuda", "cuda"][1]).read_text())["cases"]
    assert verdict_seconds()["cpu", "triton"][0] == pytest.approx(
        1 / cpu["triton"]["workers_1"]["per_s"], rel=0.02
    )
    built = cpu["cpp_build"]["unseen_median_s"] + 1 / cpu["cpp_timed"]["workers_1"]["per_s"]
    assert verdict_seconds()["cpu", "cpp"][0] == pytest.approx(built, rel=0.02)
    strict = {name: case["wall_s"] for name, case in gpu.items() if name.endswith(" strict")}
    cuda = strict.pop("l1_019_relu_cuda strict")
    assert verdict_seconds()["cuda", "cuda"][0] == pytest.approx(cuda, rel=0.01)
    assert verdict_seconds()["cuda", "triton"][0] == pytest.approx(
        sum(strict.values()) / len(strict), rel=0.01
    )


def test_forecast_opens_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert look(tmp_path, price=PRICE, max_tokens=10).most_requests == 18
