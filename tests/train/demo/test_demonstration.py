"""The demonstration: what it goes on from, and a miniature of the whole."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError
from kernelgym.prompts.short import ShortObserver
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym.types import Job, Problem
from kernelgym_train.demo import __main__ as command
from kernelgym_train.demo.demonstration import demonstrate, specimens_of
from kernelgym_train.demo.folders import PRACTICE
from kernelgym_train.demo.heldout import HeldOut
from kernelgym_train.demo.learning import RULES, learning_config
from kernelgym_train.demo.plan import CPU_PLAN, TINY_PLAN, on_backend
from kernelgym_train.demo.scores import scores_of
from kernelgym_train.demo.stages import (
    config_of,
    holds_only_start,
    prepare,
    warm_up,
)
from kernelgym_train.launch.assembly import held_out_problems, training_problems
from kernelgym_train.types import Rollout
from support.demo_rollouts import RIGHT, WRONG, rollout

PROBLEM = SyntheticSuite().problems(level=1)[0]


def about(problem: Problem, made: Rollout) -> Rollout:
    return dataclasses.replace(
        made, trajectory=dataclasses.replace(made.trajectory, problem=problem)
    )


def test_the_judge_is_the_one_that_the_configuration_asks_for(tmp_path: Path) -> None:
    assert learning_config(tmp_path / "model", tmp_path / "run", 0).rules == RULES


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("closed", [False, True])
def test_every_worker_is_warmed_up_by_a_kernel_unless_the_judge_is_closed(closed: bool) -> None:
    asked: list[Job] = []

    class Judge:
        workers = 3

        def evaluate_many(self, jobs: list[Job]) -> None:
            asked.extend(jobs)
            if closed:
                raise ValueError("this evaluator is closed")

    warm_up(Judge()).join(10)  # type: ignore[arg-type]
    assert len({job.kernel.source for job in asked}) == 3


def test_what_does_not_fit_is_asked_anew() -> None:
    observer = ShortObserver("triton", "cpu", "strict", 2, count=len)
    turns = about(PROBLEM, rollout(0, [WRONG, RIGHT])).trajectory.turns[:1]
    asked, *tried = observer.observe(PROBLEM, turns)
    assert len(tried) == 2
    needed = observer.tokens(tried)
    assert observer.observe(PROBLEM, turns, needed) == (asked, *tried)
    assert observer.observe(PROBLEM, turns, needed - 1) == observer.observe(PROBLEM) == (asked,)


def test_specimens_are_problems_that_were_learned() -> None:
    def table(*first: Any) -> dict[str, HeldOut]:
        played = tuple(
            dataclasses.replace(
                about(problem, rollout(0, [verdict])),
                key=rollout(0, [verdict]).key._replace(problem=place),
            )
            for place, (problem, verdict) in enumerate(
                zip(SyntheticSuite().problems(level=1), first, strict=False)
            )
        )
        return {"t": HeldOut(scores_of(played), played, ())}

    found = specimens_of(table(WRONG, RIGHT, WRONG), table(RIGHT, RIGHT, WRONG))
    assert [each.problem for each in found] == [PROBLEM.id]
    assert (found[0].before_verdict, found[0].after_verdict) == ("numerics", "right")
    (shown,) = specimens_of(table(WRONG, WRONG), table(WRONG, WRONG))
    assert (shown.problem, shown.after_verdict) == (PROBLEM.id, "numerics"), "nothing was learned"


def test_a_folder_that_is_there_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="another name"):
        demonstrate(tmp_path / "mine", TINY_PLAN)
    assert command.main(["--folder", str(tmp_path), "--name", "mine", "--tiny"]) == 2
    assert "another name" in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir())
    assert command.main(["--folder", str(tmp_path), "--name", "mine", "--prepare"]) == 2
    assert "something else" in capsys.readouterr().err
    assert command.main(["--seed", "one"]) == 2


def only_prepared(folder: Path, **about: Any) -> Path:
    """Make the folders that a preparation leaves, without a model."""
    for name in ("start", "problems"):
        (folder / name).mkdir(parents=True)
    made_by = {"seed": 0, "plan": TINY_PLAN.start_digest} | about
    (folder / "start" / "prepared.json").write_text(json.dumps(made_by))
    return folder


def test_demo_goes_on_from_its_own_preparation_alone(tmp_path: Path) -> None:
    folder = only_prepared(tmp_path / "demo")
    assert holds_only_start(folder, TINY_PLAN, 0)
    longer = dataclasses.replace(TINY_PLAN, steps=TINY_PLAN.steps + 1)
    assert holds_only_start(folder, longer, 0), "the same model and problems"
    assert not holds_only_start(folder, TINY_PLAN, 1)
    assert not holds_only_start(folder, CPU_PLAN, 0)
    assert not holds_only_start(tmp_path / "none", TINY_PLAN, 0)
    (folder / "verdicts.jsonl").touch()
    assert not holds_only_start(folder, TINY_PLAN, 0), "a demonstration was begun"


@pytest.mark.parametrize("about", [{"seed": 1}, {"plan": "0" * 16}])
def test_a_preparation_of_another_seed_is_refused(tmp_path: Path, about: dict[str, Any]) -> None:
    folder = only_prepared(tmp_path / "demo", **about)
    with pytest.raises(UsageError, match="was prepared with seed"):
        prepare(folder, TINY_PLAN, 0)
    with pytest.raises(UsageError, match="another name"):
        demonstrate(folder, TINY_PLAN)


def test_a_service_needs_the_prepared_model_first(tmp_path: Path) -> None:
    plan = on_backend(TINY_PLAN, "tinker", ["tinker.base_url=http://127.0.0.1:9"])
    with pytest.raises(UsageError, match=r"make it by --prepare, serve .*start"):
        demonstrate(tmp_path / "demo", plan)
    assert not (tmp_path / "demo").exists()


def test_a_servers_address_without_tinker_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--folder", str(tmp_path), "--base-url", "http://127.0.0.1:9"]
    assert command.main(given) == 2
    assert "--backend tinker" in capsys.readouterr().err


def test_plans_of_backends_share_the_start() -> None:
    plan = on_backend(CPU_PLAN, "tinker", ["tinker.base_url=http://127.0.0.1:9"])
    assert (plan.backend, plan.steps) == ("tinker", CPU_PLAN.steps)
    assert plan.start_digest == CPU_PLAN.start_digest
    assert on_backend(CPU_PLAN, "trl") == CPU_PLAN


@pytest.mark.slow
def test_a_miniature_of_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All stages, real kernels, two steps; it learns nothing, and says so in every place."""
    folder = tmp_path / "demo"
    given = ["--folder", str(tmp_path), "--tiny", "--seed", "1"]
    assert command.main([*given, "--prepare"]) == 0
    assert str(folder / "start") in capsys.readouterr().out
    start = {path.name: path.read_bytes() for path in (folder / "start").iterdir()}
    assert holds_only_start(folder, TINY_PLAN, 1)
    assert command.main(given) == 0
    assert start == {path.name: path.read_bytes() for path in (folder / "start").iterdir()}
    out = capsys.readouterr().out
    assert "held out: compositions" in out and "report" in out
    found = json.loads((folder / "results.json").read_text())
    assert set(found["before"]) == set(TINY_PLAN.held_out)
    assert found["before"]["compositions"]["n"] == TINY_PLAN.samples
    assert found["extra"]["judged"] == len((folder / "verdicts.jsonl").read_text().splitlines())
    assert len(found["curves"]["reward"]) == TINY_PLAN.steps
    assert "A small model learns" in (folder / "report.html").read_text()
    assert (folder / "main" / "model" / "adapter_model.safetensors").is_file()
    log = (folder / "main" / "logs.log").read_text()
    assert "INFO playing the held-out problems before training" in log and "INFO ended" in log
    assert not (folder / "merged" / "adapter_config.json").exists()

    from transformers import AutoModelForCausalLM

    assert AutoModelForCausalLM.from_pretrained(folder / "merged").num_parameters() > 0
    # The folders are an ordinary run's suites, and hold what was played.
    config = config_of(
        prepare(folder, TINY_PLAN, 1),
        "again",
        (
            f"env.suite={folder / 'problems' / PRACTICE}",
            f"evaluation.suite={folder / 'problems' / 'compositions'}",
        ),
    )
    practice, held_out = training_problems(config), held_out_problems(config)
    rows = (folder / "main" / "trajectories.jsonl").read_text().splitlines()
    played = {json.loads(row)["problem"]["digest"] for row in rows}
    assert played <= {problem.digest for problem in practice}
    assert len(held_out) == TINY_PLAN.held_out["compositions"]
    again = [*given, "--name", "demo", "--prepare"]
    assert command.main(again) == 0, "it is prepared already"
