"""Settings that a backend has no use for are refused by name; what it cannot do, on loading."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.errors import UnknownName, UsageError
from kernelgym_train.config.config import check_resume, dump_config, load_config

TINKER = "run.backend=tinker"


@pytest.mark.parametrize(
    "setting",
    [
        "model.dtype=bfloat16",
        "model.device=cpu",
        "model.lora_alpha=32",
        "model.lora_dropout=0.1",
        "model.lora_targets=[q_proj]",
        "model.modules_to_save=[lm_head]",
        "model.quantisation=4bit",
        "model.gradient_checkpointing=false",
        "model.lora_rank=0",
        "sampling.engine=vllm_server",
        "sampling.batch_size=8",
        "sampling.temperature=0.7",
        "sampling.top_p=0.9",
        "optimiser.micro_batch=4",
        "run.options=[max_concurrency=3]",
    ],
)
def test_setting_tinker_cannot_use_is_refused(setting: str) -> None:
    path, _, value = setting.partition("=")
    with pytest.raises(UsageError) as refused:
        load_config(None, [TINKER, setting])
    said = str(refused.value)
    assert said.startswith(f"{path}={value}") and ("leave it" in said or "give its rank" in said)


def test_defaults_spelt_out_are_taken_by_each_backend(tmp_path: Path) -> None:
    for backend in ("trl", "tinker"):
        config = load_config(None, [f"run.backend={backend}"])
        path = tmp_path / f"{backend}.yaml"
        path.write_text(dump_config(config))
        assert load_config(path) == config


@given(st.integers(1, 9), st.integers(2, 9), st.integers(1, 5), st.integers(1, 4))
def test_step_on_tinker_need_not_divide(groups: int, size: int, turns: int, updates: int) -> None:
    step = [
        f"sampling.problems_per_step={groups}",
        f"sampling.group_size={size}",
        f"env.max_turns={turns}",
        f"optimiser.updates_per_step={updates}",
    ]
    assert load_config(None, [TINKER, *step]).samples_per_step == groups * size * turns


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([TINKER, "optimiser.loss=dapo"], "unknown loss of backend tinker 'dapo'.*known: auto"),
        (["optimiser.loss=ppo"], "unknown loss of TRL 'ppo'"),
        (
            [TINKER, "optimiser.loss=importance_sampling", "optimiser.clip_low=0.1"],
            "its loss clips nothing",
        ),
        (
            [TINKER, "optimiser.importance=sequence", "optimiser.loss=cispo"],
            "service's loss gspo; leave optimiser.loss auto",
        ),
        ([TINKER, "optimiser.loss=dro", "optimiser.clip_high=0.1"], "its loss clips nothing"),
        ([TINKER, "tinker.dro_beta=0.1"], "only optimiser.loss=dro reads it"),
        ([TINKER, "optimiser.loss=dro", "tinker.dro_beta=0"], "must be above 0"),
        (
            [TINKER, "optimiser.loss=dro", "credit.normaliser=sequence"],
            "set credit.normaliser to token or constant",
        ),
        (["run.options=[delta]"], "name=value, got 'delta'"),
        (["run.options=[max_steps=3]"], "follows from other settings"),
    ],
)
def test_loss_or_option_unknown_is_refused_on_loading(settings: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_config(None, settings)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("runs/first", "is not an address of weights on a Tinker service.*--resume RUN"),
        ("tinker://", "is not an address"),
        ("tinker://run", "is not an address"),
        ("tinker://a b/weights/c", "is not an address"),
        ("tinker://run/step-000004", "are weights for sampling, which cannot be trained"),
        ("tinker://run/sampler_weights/step-000004", "cannot be trained.*as state_path"),
    ],
)
def test_start_that_is_no_kept_state_is_refused(path: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_config(None, [TINKER, f"tinker.start_from={path}"])


@pytest.mark.slow
def test_option_of_trl_mistyped_is_refused_on_loading() -> None:
    pytest.importorskip("trl")
    with pytest.raises(UnknownName, match="did you mean vllm_mode"):
        load_config(None, ["run.options=[vllm_mod=server]"])


@pytest.mark.parametrize("loss", ["auto", "importance_sampling", "ppo", "cispo", "gspo", "dro"])
def test_loss_of_tinker_is_taken(loss: str) -> None:
    assert load_config(None, [TINKER, f"optimiser.loss={loss}"]).optimiser.loss == loss


CAPPED = (
    *(TINKER, "model.id=Qwen/Qwen3-8B", "sampling.problems_per_step=2", "sampling.group_size=2"),
    *("env.max_turns=1", "sampling.max_prompt_tokens=1000", "sampling.max_new_tokens=1000"),
    "sampling.refill_rounds=0",
)
"""At most 16,000 tokens a step: 4,000 of prompts, 4,000 sampled, 8,000 learned from."""


@pytest.mark.parametrize(
    ("cap", "said"),
    [
        ("tinker.most_tokens=15999", "is below the 16000 tokens that one step may take; raise it"),
        ("tinker.most_tokens=-1", "is below the 16000 tokens"),
        ("tinker.most_usd=0.006", "is below the 0.0067 USD that one step may cost; raise it"),
    ],
)
def test_cap_below_one_step_is_refused(cap: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_config(None, [*CAPPED, cap])


def test_cap_without_a_price_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no price is known.*set tinker\.most_tokens"):
        load_config(None, [*CAPPED, "model.id=runs/demo/start", "tinker.most_usd=5"])
    kept = load_config(None, [*CAPPED, "tinker.most_usd=5", "tinker.most_tokens=16000"])
    other = load_config(None, [*CAPPED, "tinker.most_usd=9"])
    check_resume(kept.model_dump(), other)


@pytest.mark.parametrize(
    "setting", ["tinker.base_url=http://a", "tinker.keep_days=3", "sampling.at_once=4"]
)
def test_setting_trl_cannot_use_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match=f"^{setting} is a setting that backend trl has no use"):
        load_config(None, [setting])
    load_config(None, [TINKER, setting])


def test_tinker_in_several_processes_is_refused() -> None:
    with pytest.raises(UsageError, match="2 processes were started"):
        load_config(None, [TINKER], processes=2)


def test_loading_imports_no_sdk() -> None:
    code = (
        "import sys\n"
        "from kernelgym_train.config.config import load_config\n"
        "for name in ('trl', 'tinker'):\n"
        "    load_config(None, [f'run.backend={name}'])\n"
        "sys.exit(', '.join({'torch', 'transformers', 'trl', 'tinker'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
