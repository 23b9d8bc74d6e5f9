"""Episodes for tinker-cookbook: what a model reads, what an answer earns, what a batch holds."""

from __future__ import annotations

import asyncio
import importlib
import pickle
import sys

import pytest

from kernelgym import JudgeError, UsageError
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Status
from kernelgym_train.demo.folders import write_problems
from support import cookbook_stubs, tiny

RIGHT, WRONG = tiny.LINES[0], tiny.LINES[7]
SETTINGS = (
    *("env.language=triton", "env.ruleset=kernelbench", "env.max_turns=3", "env.prompt=short"),
    *("sampling.problems_per_step=2", "sampling.group_size=3", "sampling.max_new_tokens=6"),
    *("optimiser.steps=4", "run.backend=tinker", "model.lora_rank=4", "reward.preset=sparse"),
    *("evaluation.every=1", "evaluation.samples=2", "evaluation.pass_at=[1]", "reward.gamma=0.5"),
    "sampling.max_prompt_tokens=4000",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a model's tokenizer and shape, and problems."""
    made = tmp_path_factory.mktemp("cookbook")
    words = tiny.tokenizer()
    tiny.model(len(words)).save_pretrained(made / "model")
    words.save_pretrained(made / "model")
    problems = tiny.problems(5)
    write_problems(made / "problems", {"practice": problems[:3], "test": problems[3:]})
    return made


@pytest.fixture
def cookbook(monkeypatch, sizes_unknown):
    """Return the adapter, judged by a script; with stubs where the cookbook is not installed."""
    cookbook_stubs.install(monkeypatch)
    monkeypatch.delitem(sys.modules, "kernelgym_train.adapters.cookbook", raising=False)
    adapter = importlib.import_module("kernelgym_train.adapters.cookbook")
    judged_by(monkeypatch, adapter, tiny.judge)
    yield adapter
    sys.modules.pop("kernelgym_train.adapters.cookbook", None)


def judged_by(monkeypatch, adapter, script):
    """Have a script judge."""
    monkeypatch.setattr(
        adapter,
        "run_evaluator",
        lambda config: ScriptedEvaluator(script, ruleset=config.rules),
    )


def datasets(cookbook, folder, *settings):
    """Return the datasets to train on and to test on."""
    suites = (f"env.suite={folder / 'problems/practice'}", f"model.id={folder / 'model'}")
    held_out = f"evaluation.suite={folder / 'problems/test'}"
    config = folder / "empty.yaml"
    config.write_text("{}\n")
    made = cookbook.EpisodeDatasetBuilder(
        config=str(config), settings=(*SETTINGS, *suites, held_out, *settings)
    )
    return asyncio.run(made())


def ids(words, line):
    """Return an answer's ids, its end included."""
    return [words.convert_tokens_to_ids(line), words.eos_token_id]


def played(cookbook, folder, *lines, settings=(), extra=None):
    """Play one episode with one answer a turn; returns the results of its steps."""
    train, _ = datasets(cookbook, folder, *settings)
    words = tiny.tokenizer()

    async def play():
        env = (await train.get_batch(0)[0].make_envs())[0]
        shown, stop = await env.initial_observation()
        assert shown.length > 0 and stop == [words.eos_token_id]
        return [await env.step(ids(words, line), extra=extra) for line in lines]

    return asyncio.run(play())


def test_rewards_add_up_to_the_first_return(cookbook, folder):
    first, second = played(cookbook, folder, WRONG, RIGHT)
    assert (first.reward, first.episode_done) == (0.0, False)
    assert first.next_observation.length > 0 and first.next_stop_condition
    # Solved at the second of three turns: 0.5 of it, and 0.25 since solved is absorbing.
    assert (second.reward, second.episode_done) == (0.75, True)
    assert second.metrics["correct"] == 1.0 and second.metrics["stop/completed"] == 1.0


def test_spent_turns_end_an_episode(cookbook, folder):
    steps = played(cookbook, folder, WRONG, WRONG, WRONG)
    assert [step.episode_done for step in steps] == [False, False, True]
    assert steps[-1].metrics["stop/max_turns"] == 1.0
    assert sum(step.reward for step in steps) == 0.0


def test_full_context_ends_an_episode(cookbook, folder):
    full = ("env.prompt=full", "env.context=transcript", "env.context_tokens=1")
    (step,) = played(cookbook, folder, WRONG, settings=full)
    assert step.episode_done and step.metrics["stop/context_overflow"] == 1.0


@pytest.mark.parametrize(("reason", "cut_off"), [("length", 1.0), ("stop", 0.0)])
def test_answer_that_was_cut_off_is_told(cookbook, folder, reason, cut_off):
    (step,) = played(cookbook, folder, RIGHT, extra={"stop_reason": reason})
    assert step.metrics["cut_off"] == cut_off


def test_kernel_that_was_not_judged_raises(cookbook, folder, monkeypatch):
    judged_by(monkeypatch, cookbook, lambda *_: verdict(Status.UNAVAILABLE))
    with pytest.raises(JudgeError, match="could not be judged"):
        played(cookbook, folder, RIGHT)


def test_batches_hold_every_problem_once_a_round(cookbook, folder):
    train, _ = datasets(cookbook, folder)
    assert len(train) == 4
    drawn = [group.problem.id for number in range(3) for group in train.get_batch(number)]
    assert len(set(drawn[:3])) == len(set(drawn[3:])) == 3
    again = [group.problem.id for group in train.get_batch(2)]
    assert again == drawn[4:], "whatever was asked for before"
    with pytest.raises(IndexError):
        train.get_batch(4)


def test_held_out_problems_come_once(cookbook, folder):
    _, test = datasets(cookbook, folder)
    groups = [group for number in range(len(test)) for group in test.get_batch(number)]
    assert len({group.problem.id for group in groups}) == len(groups) == 2
    assert {group.episodes for group in groups} == {2}
    assert datasets(cookbook, folder, "evaluation.every=0")[1] is None


def test_group_builder_pickles(cookbook, folder):
    group = datasets(cookbook, folder)[0].get_batch(1)[0]
    assert pickle.loads(pickle.dumps(group)) == group
    assert len(asyncio.run(group.make_envs())) == 3
    assert group.logging_tags() == ["practice-L1"]


def test_prompt_that_does_not_fit_is_refused(cookbook, folder):
    with pytest.raises(UsageError, match=r"sampling\.max_prompt_tokens"):
        datasets(cookbook, folder, "sampling.max_prompt_tokens=2")
