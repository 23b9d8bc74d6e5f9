"""Flat names of other systems are read as ours, or refused with what does their work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UnknownName, UsageError
from kernelgym.reading import options
from kernelgym.rewards import REWARDS
from kernelgym_train.config import flat_names
from kernelgym_train.config.config import Config, dump_config, load_config

KEYS = {key.path for key in options(Config)}
PATH = "tinker://a-run/weights/step-000004"

VALUES = [
    ("model_name=Qwen/Qwen3-8B", {"model.id": "Qwen/Qwen3-8B"}),
    ("lora_rank=16", {"model.lora_rank": 16}),
    ("learning_rate=1e-4", {"optimiser.learning_rate": 1e-4}),
    ("max_tokens=512", {"sampling.max_new_tokens": 512}),
    ("temperature=0.9", {"sampling.temperature": 0.9}),
    ("level=2", {"env.levels": (2,)}),
    ("batch_size=4", {"sampling.problems_per_step": 4}),
    ("group_size=16", {"sampling.group_size": 16}),
    ("num_substeps=2", {"optimiser.updates_per_step": 2}),
    ("loss_fn=cispo", {"optimiser.loss": "cispo"}),
    ("kl_penalty_coef=0.1", {"optimiser.kl_beta": 0.1}),
    ("mode=single_turn", {"env.max_turns": 1}),
    ("mode=multi_turn", {"env.max_turns": 4}),
    ("max_turns=2", {"env.max_turns": 2}),
    ("gamma=0.9", {"reward.gamma": 0.9}),
    ("save_every=5", {"run.save_every": 5}),
    ("eval_every=3", {"evaluation.every": 3}),
    ("log_path=./out/first", {"run.folder": "out", "run.name": "first"}),
    ("base_url=http://127.0.0.1:8004", {"tinker.base_url": "http://127.0.0.1:8004"}),
    (f"load_checkpoint_path={PATH}", {"tinker.start_from": PATH}),
    ("tensorboard_enabled=false", {"logging.tensorboard": False}),
    ("tensorboard_log_histograms_every=2", {"logging.histograms_every": 2}),
    ("wandb_project=kernels", {"logging.wandb_project": "kernels"}),
    ("dataset_builder.batch_size=4", {"sampling.problems_per_step": 4}),
    ("dataset_builder.measure_performance=true", {"judge.timing": True}),
    ("dataset_builder.backend=cpp", {"env.language": "cpp"}),
    ("dataset_builder.prompt_option=few_shot", {"env.examples": "few_shot"}),
    ("dataset_builder.rag_index_path=synthetic", {"retrieval.index": "synthetic"}),
    ("dataset_builder.raicl_k=5", {"retrieval.k": 5}),
    ("dataset_builder.reward_format_weight=0.2", {"reward.weights.format": 0.2}),
    ("dataset_builder.reward_compile_weight=0.3", {"reward.weights.compile": 0.3}),
    (
        "dataset_builder.reward_correctness_weight=0.5",
        {"reward.weights.trials": 0.25, "reward.weights.correct": 0.25},
    ),
    ("wandb_project=null", {"logging.wandb_project": ""}),
    ("resume_from_batch=null", {}),
]


def at(config: Config, path: str) -> Any:
    found: Any = config
    for name in path.split("."):
        found = getattr(found, name)
    return found


def load_file(folder: Path, text: str, *overrides: str) -> Config:
    path = folder / "run.yaml"
    path.write_text(text)
    return load_config(path, overrides)


@pytest.mark.parametrize(("given", "ours"), VALUES, ids=lambda value: str(value)[:40])
def test_flat_name_is_read_as_ours(given: str, ours: dict[str, Any], tmp_path: Path) -> None:
    remote = any(path.startswith("tinker.") for path in ours)
    backend = "run: {backend: tinker}\n" if remote else ""
    config = load_config(None, [given, "run.backend=tinker"] if backend else [given])
    assert {path: at(config, path) for path in ours} == ours
    name, _, value = given.partition("=")
    head, _, inner = name.rpartition(".")
    line = f"{inner}: {value}"
    filed = load_file(tmp_path, backend + (f"{head}:\n  {line}" if head else line))
    assert filed == config
    # A dump has our names alone, and is read back.
    assert not set(yaml.safe_load(dump_config(config))) & {head or inner}
    assert load_file(tmp_path, dump_config(config)) == config


def test_flat_names_tried_stand_for_settings() -> None:
    tried = {given.partition("=")[0].removeprefix("dataset_builder.") for given, _ in VALUES}
    known = {**flat_names.FLAT, **flat_names.BUILDER}
    assert set(known) - tried == {"reward_speed_weight"}, "which needs a judge that times"
    assert {path for paths in known.values() for path in paths} <= KEYS
    sections = {path.partition(".")[0] for path in KEYS}
    assert not sections & {*known, *flat_names.REFUSED, "dataset_builder"}


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        *((name, why) for name, why in flat_names.REFUSED.items()),
        *((f"dataset_builder.{name}", why) for name, why in flat_names.BUILDER_REFUSED.items()),
    ],
)
def test_flat_name_without_counterpart_says_why(name: str, refused: str) -> None:
    with pytest.raises(
        UsageError, match=re.escape(f"{name} is not a setting of kernelgym: {refused}")
    ):
        load_config(None, [f"{name}=3"])
    # What it advises to set exists.
    for path in re.findall(r"\b(?:env|run|reward|judge|optimiser|sampling)\.[a-z_.]+\w", refused):
        assert path in KEYS, path


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["batch_size=4", "sampling.problems_per_step=8"], "one setting, sampling.problems_per_st"),
        (["batch_size=4", "dataset_builder.batch_size=8"], "give one of them"),
        (["mode=single_turn", "max_turns=4"], "contradict each other"),
        (["mode=single_turn", "env.max_turns=4"], "contradict each other"),
        (["mode=multi_turn", "max_turns=1"], "contradict each other"),
        (["mode=multi"], "unknown mode 'multi'; did you mean multi_turn"),
        (["dataset_builder.prompt_option=raicl"], "raicl needs an index; set retrieval.index"),
        (["dataset_builder.batchsize=3"], "did you mean batch_size"),
        (["batch_size=0"], "sampling.problems_per_step must be above 0"),
        (["max_tokens=many"], "sampling.max_new_tokens is a whole number"),
        (["dataset_builder.reward_correctness_weight=much"], "reward.weights.trials is a number"),
        (["dataset_builder.reward_speed_weight=0.3"], "needs measured speed"),
        (["dataset_builder.reward_format_weight=-1"], "reward weight format must be finite"),
        (["resume_from_batch=3"], "--resume RUN"),
        (
            ["load_checkpoint_path=./runs/x", "run.backend=tinker"],
            r"tinker.start_from=\./runs/x is not an address",
        ),
    ],
)
def test_flat_value_that_does_not_fit_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_config(None, overrides)


RAICL = "dataset_builder.prompt_option=raicl"


def test_raicl_takes_its_index_from_either_name(tmp_path: Path) -> None:
    text = "dataset_builder:\n  prompt_option: raicl\n  rag_index_path: synthetic\n"
    for config in (
        load_file(tmp_path, text),
        load_config(None, [RAICL, "retrieval.index=synthetic"]),
        load_file(
            tmp_path, "retrieval: {index: synthetic}\n", "dataset_builder.prompt_option=raicl"
        ),
    ):
        assert config.retrieval.index == "synthetic" and config.env.examples == "one_shot"


def test_command_line_goes_before_a_flat_file(tmp_path: Path) -> None:
    text = "batch_size: 4\nmode: multi_turn\nwandb_project: null\nmultiturn_dataset_builder: null\n"
    assert load_file(tmp_path, text, "batch_size=2").sampling.problems_per_step == 2
    assert load_file(tmp_path, text, "sampling.problems_per_step=2").samples_per_step == 2 * 8 * 4
    assert load_file(tmp_path, text, "mode=single_turn").env.max_turns == 1
    with pytest.raises(UsageError, match="contradict"):
        load_file(tmp_path, text, "max_turns=1")
    with pytest.raises(UsageError, match="dataset_builder is a section"):
        load_file(tmp_path, "dataset_builder: 3")
    with pytest.raises(UsageError, match="sampling is a mapping with fields, got 3"):
        load_file(tmp_path, "sampling: 3\nbatch_size: 4")


@pytest.mark.parametrize(
    ("stage", "weights"), [("stage1", (0.3, 0.5, 0.2)), ("stage2", (0.1, 0.2, 0.7))]
)
def test_stage_in_flat_weights_is_the_preset(stage: str, weights: tuple[float, ...]) -> None:
    names = ("format", "compile", "correctness")
    given = [f"dataset_builder.reward_{n}_weight={w}" for n, w in zip(names, weights, strict=True)]
    assert load_config(None, given).schedule.at(0).weights == REWARDS[stage].weights


def test_command_of_the_other_system_is_taken_whole() -> None:
    command = (
        "model_name=Qwen/Qwen2.5-Coder-7B-Instruct log_path=./runs/kernel_rl_v1 level=1 "
        "batch_size=4 group_size=4 dataset_builder.reward_correctness_weight=0.5 "
        "dataset_builder.reward_speed_weight=0.35 dataset_builder.measure_performance=true"
    )
    config = load_config(None, [*command.split(), "judge.device=cuda"])
    assert (config.run.folder, config.run.name) == ("runs", "kernel_rl_v1")
    assert config.samples_per_step == 4 * 4 * 4
    assert config.schedule.at(0).weights.speed == 0.35


FLAT_GIVEN = st.dictionaries(
    st.sampled_from(["batch_size", "group_size", "max_tokens", "save_every", "eval_every"]),
    st.integers(2, 50),
    min_size=1,
)


@given(FLAT_GIVEN)
def test_flat_and_own_names_give_the_same(given_: dict[str, int]) -> None:
    flat = ["run.backend=tinker", *(f"{name}={value}" for name, value in given_.items())]
    paths = {flat_names.FLAT[name][0]: value for name, value in given_.items()}
    own = ["run.backend=tinker", *(f"{path}={value}" for path, value in paths.items())]
    assert load_config(None, flat) == load_config(None, own) == load_config(None, [*flat, *own])


def test_flat_names_are_all_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, paths in {**flat_names.FLAT, **flat_names.BUILDER}.items():
        (row,) = (row for row in rows if f"`{name}`" in row.split("|")[1])
        assert all(f"`{path}`" in row.split("|")[2] for path in paths), row


def test_batch_to_resume_from_is_the_step() -> None:
    read = flat_names.read_from_step
    assert read(["a.b=1", "resume_from_batch=40"], None) == (["a.b=1"], 40)
    assert read(["resume_from_batch = 40"], 40) == ([], 40)
    assert read(["resume_from_batch=null"], 3) == ([], 3)
    assert read(["a.b=1"], None) == (["a.b=1"], None)
    with pytest.raises(UsageError, match="and --from-step 3 was given; give one of them"):
        read(["resume_from_batch=40"], 3)
    with pytest.raises(UsageError, match="is a number of steps, got 'last'"):
        read(["resume_from_batch=last"], None)


def test_mode_unknown_in_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="known: single_turn, multi_turn"):
        load_file(tmp_path, "mode: both")
