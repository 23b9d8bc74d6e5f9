"""A run that is killed and resumed equals the run that was not.

Equal means: sampled ids, scores, advantages' numbers, gradient norms and the digest of the weights,
bit by bit. The loss itself is near 0 on policy and would prove nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgym import Kernel, Problem, Verdict
from kernelgym.testing import verdict
from kernelgym_train.rollout.huggingface_policy import HFPolicy
from kernelgym_train.run.runlog import RunLog
from support import tiny

pytestmark = pytest.mark.usefixtures("one_thread")

LORA = ("model.lora_rank=4", "model.lora_alpha=8", "model.modules_to_save=[lm_head]")


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it, and nothing is tidied up."""


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def outcome(folder: Path) -> dict[str, Any]:
    """All that must be equal of two runs."""
    measured = [
        {k: v for k, v in row.items() if not k.startswith(("time/", "judge/"))}
        for row in rows(folder, "metrics.jsonl")
    ]
    episodes = [
        (row["key"], row["problem"]["id"], [turn["score"]["total"] for turn in row["turns"]])
        for row in rows(folder, "trajectories.jsonl")
    ]
    saved = [(row["step"], row["weights"]) for row in rows(folder, "checkpoints.jsonl")]
    return {
        "ids": [(row["key"], row["ids"]) for row in rows(folder, "tokens.jsonl")],
        "episodes": episodes,
        "metrics": measured,
        "gradients": [row["train/grad_norm"] for row in measured],
        "weights": saved,
    }


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    tiny.run(folder, tiny.config())
    return folder


@pytest.fixture(scope="module")
def unbroken_lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("unbroken") / "lora"
    tiny.run(folder, tiny.config(*LORA))
    return folder


@pytest.mark.slow
def test_the_unbroken_run_learns_something_from_step_to_step(unbroken: Path) -> None:
    """Otherwise all that follows would be equal for want of anything that could differ."""
    found = outcome(unbroken)
    assert len(found["metrics"]) == 5
    assert len(set(found["gradients"])) == 5 and all(norm > 0 for norm in found["gradients"])
    assert len({weights for _, weights in found["weights"]}) == 3
    assert [step for step, _ in found["weights"]] == [2, 4, 5]


@pytest.mark.slow
def test_another_seed_gives_another_run(unbroken: Path, tmp_path: Path) -> None:
    tiny.run(tmp_path / "run", tiny.config("run.seed=1"))
    found, other = outcome(unbroken), outcome(tmp_path / "run")
    assert all(found[name] != other[name] for name in found)


def at(count: int, method: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """Return `method`, killed at its n-th call, before or after it did its work."""
    calls = iter(range(1, 1 << 30))

    def dying(*args: Any, **options: Any) -> Any:
        if next(calls) < count:
            return method(*args, **options)
        if after:
            method(*args, **options)
        raise Killed

    return dying


def sampling(patch: pytest.MonkeyPatch) -> None:
    """In the middle of an episode of step 3, between its two turns."""
    patch.setattr(HFPolicy, "generate", at(8, HFPolicy.generate))


def optimising(patch: pytest.MonkeyPatch) -> None:
    """After the optimiser step of step 3, its metrics written, no checkpoint yet."""
    patch.setattr(RunLog, "metrics", at(4, RunLog.metrics, after=True))


def saving(patch: pytest.MonkeyPatch) -> None:
    """With the second checkpoint's folder written, but for its row."""
    patch.setattr(RunLog, "commit", at(2, RunLog.commit))


def saved(patch: pytest.MonkeyPatch) -> None:
    """Right after the row of the second checkpoint."""
    patch.setattr(RunLog, "commit", at(2, RunLog.commit, after=True))


def early(patch: pytest.MonkeyPatch) -> None:
    """Before there is any checkpoint, in the middle of writing down what was played."""
    patch.setattr(RunLog, "rollouts", at(2, RunLog.rollouts))


POINTS = [
    pytest.param(sampling, 2, marks=pytest.mark.slow),
    pytest.param(optimising, 2, marks=pytest.mark.slow),
    pytest.param(saving, 2, marks=pytest.mark.slow),
    (saved, 4),
    pytest.param(early, 0, marks=pytest.mark.slow),
]


def killed(folder: Path, point: Callable[[pytest.MonkeyPatch], None], *settings: str) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        point(patch)
        tiny.run(folder, tiny.config(*settings))


@pytest.mark.parametrize(
    ("point", "step"), POINTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_killed_and_resumed_equals_unbroken(
    point: Callable[[pytest.MonkeyPatch], None], step: int, unbroken: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    killed(folder, point)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 99, "half')
    found, log = tiny.run(folder, tiny.config(), resume=True)
    assert (log.start.step if log.start else 0) == step
    assert outcome(folder) == outcome(unbroken)
    assert found.weights == outcome(unbroken)["weights"][-1][1]


@pytest.mark.slow
@pytest.mark.parametrize("point", [sampling, saving])
def test_killed_and_resumed_equals_unbroken_with_an_adapter(
    point: Callable[[pytest.MonkeyPatch], None], unbroken_lora: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    killed(folder, point, *LORA)
    tiny.run(folder, tiny.config(*LORA), resume=True)
    assert outcome(folder) == outcome(unbroken_lora)


@pytest.mark.slow
def test_killed_twice(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed(folder, early)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        optimising(patch)
        tiny.run(folder, tiny.config(), resume=True)
    tiny.run(folder, tiny.config(), resume=True)
    assert outcome(folder) == outcome(unbroken)


@pytest.mark.slow
def test_more_steps_can_be_asked_for(unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    tiny.run(folder, tiny.config("optimiser.steps=2"))
    tiny.run(folder, tiny.config(), resume=True)
    found, wanted = outcome(folder), outcome(unbroken)
    for row in (*found["metrics"], *wanted["metrics"]):
        del row["progress/done_frac"]  # of fewer steps
    assert found == wanted


@pytest.mark.parametrize(
    "settings",
    [pytest.param((), id="whole"), pytest.param(LORA, id="adapter", marks=pytest.mark.slow)],
)
def test_a_run_that_is_done_takes_no_further_step(
    settings: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    played = request.getfixturevalue("unbroken_lora" if settings else "unbroken")
    shutil.copytree(played, folder)
    before = outcome(folder)
    found, _ = tiny.run(folder, tiny.config(*settings), resume=True, seed=0)
    assert outcome(folder) == before
    assert (found.steps, found.weights) == (5, before["weights"][-1][1])


def speeds() -> Callable[[Problem, Kernel], Verdict]:
    """A judge whose clock never says the same twice."""
    calls: Iterator[int] = iter(range(1 << 30))

    def judged(problem: Problem, kernel: Kernel) -> Verdict:
        found = tiny.judge(problem, kernel)
        if not found.correct:
            return found
        return verdict("correct", speedup=1.0 + next(calls) / 7)

    return judged


@pytest.mark.slow
def test_a_step_that_is_replayed_pays_what_it_paid(tmp_path: Path) -> None:
    """Timed verdicts differ from call to call; the run's own log of them does not."""
    folder = tmp_path / "run"
    settings = ("reward.preset=stage3", "judge.device=cpu")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        optimising(patch)
        tiny.run(folder, tiny.config(*settings), script=speeds())
    paid = outcome(folder)["episodes"]
    assert any(score > 0.65 for *_, scores in paid for score in scores), "speed was paid for"
    fresh = speeds()
    for _ in range(50):
        fresh(tiny.problems(1)[0], Kernel("class ModelNew: a = 1\n", "triton"))
    tiny.run(folder, tiny.config(*settings), resume=True, script=fresh)
    assert outcome(folder)["episodes"][: len(paid)] == paid


SCRIPT = """
import sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
import os, signal
from support import tiny
from kernelgym_train.run.runlog import RunLog
folder, resume, point = sys.argv[1], sys.argv[2] == "resume", sys.argv[3]
kills = {{"metrics": 4, "commit": 2}}
if point in kills:
    method, left = getattr(RunLog, point), [kills[point]]
    def dying(*args, **options):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*args, **options)
    setattr(RunLog, point, dying)
tiny.run(folder, tiny.config(), resume=resume)
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["metrics", "commit"])
def test_a_real_kill(point: str, unbroken: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    script = SCRIPT.format(tests=str(Path(tiny.__file__).parents[1]))
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}

    def start(*arguments: str) -> int:
        command = [sys.executable, "-c", script, str(folder), *arguments]
        return subprocess.run(command, env=environment, check=False, capture_output=True).returncode

    assert start("new", point) == -signal.SIGKILL
    assert start("resume", "none") == 0
    assert outcome(folder) == outcome(unbroken)
