"""Configuration: every fault is found at the start, named by its key, with what to do."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UnknownName, UsageError
from kernelgym.reading import options
from kernelgym.rulesets import RULESETS
from kernelgym_train.config.config import Config, check_resume, dump_config, load_config
from kernelgym_train.config.settings import keys_that_differ, read_settings
from kernelgym_train.credit.credit import CreditRule

KEYS = tuple(options(Config))


def test_defaults_hold_together() -> None:
    config = load_config()
    assert config == Config()
    assert config.credit_rule == CreditRule("trloo", "token", 4096, 0.4, "sum")
    assert config.samples_per_step == 8 * 8 * 4


def test_settings_the_short_prompt_ignores_refused() -> None:
    assert load_config(None, ["env.prompt=short", "env.examples=0"]).env.prompt == "short"
    for setting in ("env.examples=few_shot", "env.context=whole"):
        with pytest.raises(UsageError, match=f"{setting} has no effect on env.prompt=short"):
            load_config(None, ["env.prompt=short", setting])
        assert load_config(None, [setting]).env.prompt == "full"


def test_overrides_go_before_the_file_and_the_file_before_defaults(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("optimiser: {steps: 7, learning_rate: 2e-6}\nenv:\n  levels: 1\nreward:\n")
    config = load_config(path, ["optimiser.steps=9", "sampling.temperature=0.5"])
    assert (config.optimiser.steps, config.optimiser.learning_rate) == (9, 2e-6)
    assert config.env.levels == (1,)
    assert config.sampling.temperature == 0.5
    assert config.reward == Config().reward  # an empty section is one of defaults
    assert load_config(path).optimiser.steps == 7


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        # YAML 1.1 takes the first two for texts, the third for False.
        ("optimiser.learning_rate=1e-5", "optimiser.learning_rate", 1e-5),
        ("judge.memory_bytes=20e9", "judge.memory_bytes", 20_000_000_000),
        ("guards.collapse=off", "guards.collapse", "off"),
        # A text is what stands there.
        ("run.name=1e5", "run.name", "1e5"),
        ("env.problems=1-20,33", "env.problems", "1-20,33"),
        ("env.split=", "env.split", ""),
        ("env.levels=[1, 2]", "env.levels", (1, 2)),
        ("env.examples=2", "env.examples", 2),
        ("env.examples=few_shot", "env.examples", "few_shot"),
        ("credit.constant=null", "credit.constant", None),
        ("credit.constant=100", "credit.constant", 100),
        ("reward.preset={0: stage1, 50: stage3}", "reward.preset", {0: "stage1", 50: "stage3"}),
        ("reward.gamma=1", "reward.gamma", 1.0),
        ("sampling.thinking=no", "sampling.thinking", False),
    ],
)
def test_values_are_read_as_their_settings_are_typed(override: str, path: str, value) -> None:
    section, name = path.split(".")
    found = getattr(getattr(load_config(None, [override]), section), name)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("optimizer.steps=3", "did you mean optimiser"),
        ("optimiser.stepz=3", "did you mean steps"),
        ("weight_decay=1", "There is optimiser.weight_decay"),
        ("sampling.learning_rate=1", "There is optimiser.learning_rate"),
        ("curriculum.replays=1", "did you mean replay"),
    ],
)
def test_unknown_settings_are_refused_with_a_suggestion(override: str, said: str) -> None:
    with pytest.raises(UnknownName, match=said):
        load_config(None, [override])


@pytest.mark.parametrize("text", ["optimizer: {steps: 3}", "optimiser: {stepz: 3}", "steps: 3"])
def test_a_file_is_held_to_the_same_settings(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(UnknownName, match=r"optimiser|steps"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: {seed: 1}\nrun: {seed: 2}", "the key run is given twice"),
        ("run: {seed: 1, seed: 2}", "the key seed is given twice"),
        ("run: [", "cannot be read as YAML"),
        ("- run", "no mapping of sections, but list"),
        ("run: 3", "run is a mapping with fields, got 3"),
        ("env: {problems: 5}", "env.problems is a text, got 5; put it in quotes"),
        ("run: {seed: 1.5}", "run.seed is a whole number, got 1.5"),
        ("run: {seed: true}", "run.seed is a whole number, got True"),
        ("reward: {preset: {}}", "a reward schedule needs whole steps that start at 0"),
        ("reward: {gamma: .nan}", "reward.gamma is a number, got nan"),
        ("sampling: {thinking: 1}", "sampling.thinking is true or false, got 1"),
        ("!!python/object/apply:os.getcwd []", "cannot be read as YAML"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(said)):
        load_config(path)
    with pytest.raises(UsageError, match="cannot read"):
        load_config(tmp_path / "other.yaml")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["env.max_turns.x=1"], "env.max_turns is a whole number, got"),
        (["sampling.group_size=1"], "sampling.group_size must be at least 2"),
        (["sampling.top_p=0"], "top_p must be above 0"),
        (["optimiser.learning_rate=0"], "learning_rate must be above 0"),
        (["reward.gamma=1.5"], "reward.gamma must be at most 1"),
        (["run.name=a/b"], "name of a folder"),
        (["run.name="], "name of a folder"),
        (["model.id="], "model.id is empty"),
        (["model.quantisation=4bit", "model.lora_rank=0"], "set model.lora_rank"),
        (["model.device=gpu"], "device 'gpu'"),
        (["env.language=cuda"], "cannot be|cannot run|on device"),
        (["env.language=tritn"], "did you mean triton"),
        (["env.ruleset=strickt"], "did you mean strict"),
        (["env.context=recnt"], "did you mean recent"),
        (["env.feedback=standart"], "did you mean standard"),
        (["env.feedback_tokens=3"], "at least"),
        (["env.examples=many_shot"], "number of examples"),
        (["env.stop=corect"], "did you mean correct"),
        (["env.stop=speedup:2"], "not timed on device 'cpu'"),
        (["env.stop=speedup:2", "judge.device=cuda"], "set judge.timing=true"),
        (["reward.preset=kevn"], "did you mean kevin"),
        (["reward.preset=kevin"], "not timed on device 'cpu'"),
        (["reward.preset=kevin", "judge.device=cuda:1"], "set judge.timing=true"),
        (["reward.preset={0: stage1, 9: kevin}"], "not timed on device 'cpu'"),
        (["reward.preset={5: stage1}"], "start at 0"),
        (["credit.estimator=trlo"], "did you mean trloo"),
        (["credit.normaliser=constant", "credit.constant=0"], "at least 1"),
        (["curriculum.target_low=0.9"], "above target_high"),
        (["guards.window=0"], "guards.window"),
        (["evaluation.samples=2"], "evaluation.pass_at"),
        (["evaluation.max_turns=0"], "evaluation.max_turns"),
        (["optimiser.micro_batch=7"], "optimiser.micro_batch=4 or 8 fits"),
        (["sampling.group_size=5", "optimiser.updates_per_step=3"], "change sampling.group_size"),
    ],
)
def test_what_does_not_fit_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_config(None, overrides)


def test_what_needs_timing_is_taken_where_there_is_some() -> None:
    load_config(None, ["reward.preset=kevin", "judge.device=cuda:1", "judge.timing=true"])
    load_config(None, ["reward.preset=kevin", "env.language=cpp", "judge.timing=true"])


@pytest.mark.parametrize(
    ("preset", "stops"),
    [("stage2", False), ("sparse", True), ("{0: sparse, 9: stage1}", False), ("stage3", True)],
)
def test_verdicts_end_at_the_first_failure_where_nobody_pays_for_more(preset, stops) -> None:
    config = load_config(None, [f"reward.preset={preset}"])
    assert config.rules.stop_at_first_failure is stops
    assert dataclasses.replace(config.rules, stop_at_first_failure=False) == RULESETS["strict"]
    asked = load_config(None, [f"reward.preset={preset}", "judge.stop_at_first_failure=false"])
    assert asked.rules == RULESETS["strict"]


def test_a_share_of_trials_is_not_paid_where_not_all_are_made() -> None:
    load_config(None, ["reward.preset=sparse", "judge.stop_at_first_failure=true"])
    with pytest.raises(UsageError, match="stops at the first failure"):
        load_config(None, ["reward.preset=stage2", "judge.stop_at_first_failure=true"])


def test_groups_stay_on_one_process() -> None:
    load_config(processes=4)
    with pytest.raises(UsageError, match="a multiple of 3"):
        load_config(processes=3)


@given(st.integers(1, 12), st.integers(2, 12), st.integers(1, 5), st.integers(1, 4))
def test_the_micro_batch_that_is_advised_fits(groups, size, turns, updates) -> None:
    step = [
        f"sampling.problems_per_step={groups}",
        f"sampling.group_size={size}",
        f"env.max_turns={turns}",
        f"optimiser.updates_per_step={updates}",
    ]
    try:
        load_config(None, [*step, "optimiser.micro_batch=13"])
    except UsageError as error:
        advised = re.search(r"optimiser\.micro_batch=(\d+)(?: or (\d+))? fits", str(error))
        if advised is None:
            assert groups * size * turns % updates
            return
        for number in filter(None, advised.groups()):
            load_config(None, [*step, f"optimiser.micro_batch={number}"])
    else:
        assert groups * size * turns % (13 * updates) == 0


def test_a_dump_is_whole_and_gives_the_same_configuration(tmp_path: Path) -> None:
    config = load_config(
        None, ["reward.preset={0: stage1, 9: stage2}", "env.levels=[2]", "guards.gap=off"]
    )
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(config))
    assert load_config(path) == config
    there = yaml.safe_load(path.read_text())
    weights = {f"weights.{part}" for part in there["reward"].pop("weights")}
    there["reward"] |= dict.fromkeys(weights)
    assert {f"{section}.{name}" for section in there for name in there[section]} == {
        key.path for key in KEYS
    }


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.path)
def test_every_setting_says_what_it_is_for(key) -> None:
    assert (key.help.endswith(".") and key.help[0].isupper()) or key.help.startswith("trloo")
    # Its default is a value of its type: a file that spells it out is read.
    data = key.default
    for name in reversed(key.path.split(".")):
        data = {name: data}
    read = read_settings(Config, data)
    assert read.model_dump() == Config().model_dump()


def test_a_run_is_resumed_under_its_own_configuration() -> None:
    kept = load_config().model_dump()
    for free in ("optimiser.steps=500", "judge.workers=4", "logging.live=no", "run.folder=x"):
        check_resume(kept, load_config(None, [free]))
    check_resume(kept, load_config(None, ["judge.standby=3"]))
    with pytest.raises(UsageError, match=r"another run\.seed, credit\.estimator; leave them"):
        check_resume(kept, load_config(None, ["run.seed=3", "credit.estimator=rloo"]))
    older = {name: section for name, section in kept.items() if name != "curriculum"}
    with pytest.raises(UsageError, match="another curriculum; leave it"):
        check_resume(older, load_config())


def test_differences_are_named_by_their_paths() -> None:
    one, other = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}, "e": 3}
    assert keys_that_differ(one, other) == ("a.c", "d", "e")
    assert keys_that_differ(one, one) == ()
