"""What we rely on in the installed TRL, and what is passed on to it without being run here."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import UnknownName, UsageError
from kernelgym_train.backends.trl.options import grpo_options
from kernelgym_train.backends.trl.rows import rows_of
from kernelgym_train.backends.trl.settings import LOSSES
from kernelgym_train.models import adapter_options, loading_options, model_device
from kernelgym_train.types import Key, Sample
from support import tiny


def test_the_pinned_range_holds() -> None:
    major, minor = version("trl").split(".")[:2]
    assert (major, minor) == ("1", "16")


def test_the_generation_call_takes_what_it_is_given() -> None:
    from trl import GRPOTrainer

    names = [*inspect.signature(GRPOTrainer._generate_single_turn).parameters]
    assert names[:5] == ["self", "prompt_ids", "images", "multimodal_fields", "num_generations"]


def test_the_private_methods_that_we_override_are_there() -> None:
    from trl import GRPOTrainer

    for name, parameters in {
        "_generate_and_score_completions": ["self", "inputs"],
        "_compute_loss": ["self", "model", "inputs"],
        "_prepare_inputs": ["self", "generation_batch"],
        "log": ["self", "logs", "start_time"],
    }.items():
        assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters) == parameters
    scoring = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters
    first = ["self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"]
    assert [*scoring][:6] == first
    # What is not told apart from a plain call: all that follows must be None or False by default.
    assert {scoring[name].default for name in [*scoring][6:]} <= {None, False}
    source = inspect.getsource(GRPOTrainer._compute_loss)
    # Each loss type whose weights `_own_weights` reproduces; a new one would be unknown to it.
    found = {part.split('"')[1] for part in source.split("self.loss_type ==")[1:]}
    listed = source.split("if self.loss_type in [")[1:]
    for part in listed:
        found |= {name.strip().strip('"') for name in part.split("]")[0].split(",")}
    assert found == set(LOSSES)


def options(*overrides: str, **more: Any) -> dict[str, Any]:
    return grpo_options(tiny.config(*overrides), "out", **more)


@pytest.mark.parametrize("loss", [*LOSSES, "auto"])
def test_every_option_is_one_of_trls(loss: str, tmp_path: Path) -> None:
    from trl import GRPOConfig

    found = GRPOConfig(**{**options(f"optimiser.loss={loss}"), "output_dir": str(tmp_path)})
    assert found.loss_type == ("dapo" if loss == "auto" else loss)
    assert found.generation_batch_size == 16


def test_rows_updates_and_processes_divide() -> None:
    found = options("optimiser.micro_batch=2", "optimiser.updates_per_step=2")
    assert (found["steps_per_generation"], found["gradient_accumulation_steps"]) == (8, 4)
    assert (found["max_steps"], found["save_steps"]) == (10, 4)
    assert options(processes=2)["steps_per_generation"] == 2


def test_losses_and_ratios() -> None:
    assert options("credit.normaliser=sequence")["loss_type"] == "grpo"
    assert options("credit.normaliser=constant")["loss_type"] == "dr_grpo"
    found = options("optimiser.loss=cispo", "optimiser.clip_high=4.0")
    assert found["epsilon_high"] == 5.0, "TRL clips CISPO at the number itself"
    assert options("optimiser.importance=sequence")["importance_sampling_level"] == "sequence"
    with pytest.raises(UnknownName, match="did you mean dapo"):
        options("optimiser.loss=dappo")


@pytest.mark.parametrize("engine", ["colocate", "server"])
def test_vllm_is_passed_on(engine: str, tmp_path: Path) -> None:
    """Not run here: only that TRL takes what it would be given."""
    from trl import GRPOConfig

    found = options(f"sampling.engine=vllm_{engine}")
    config = GRPOConfig(**{**found, "output_dir": str(tmp_path)})
    assert (config.use_vllm, config.vllm_mode) == (True, engine)
    assert "use_vllm" not in options()


def test_options_of_trls_own_are_passed_on(tmp_path: Path) -> None:
    from trl import GRPOConfig

    given = "run.options=[vllm_gpu_memory_utilization=0.4, delta=1.5, top_entropy_quantile=0.2]"
    found = GRPOConfig(**{**options(given), "output_dir": str(tmp_path)})
    assert (found.vllm_gpu_memory_utilization, found.delta) == (0.4, 1.5)
    assert found.top_entropy_quantile == 0.2
    with pytest.raises(UnknownName, match="did you mean vllm_mode"):
        options("run.options=[vllm_mod=server]")
    for wrong in ("[max_steps=3]", "[delta]", "[loss_type=grpo]"):
        with pytest.raises(UsageError, match=r"run\.options"):
            options(f"run.options={wrong}")


@pytest.mark.parametrize(("kind", "four"), [("4bit", True), ("8bit", False)])
def test_quantisation_is_passed_on(kind: str, four: bool) -> None:
    """Not run here, for want of a GPU: only what transformers would be asked for."""
    settings = tiny.config(f"model.quantisation={kind}", "model.lora_rank=8", "model.device=cuda:0")
    found = loading_options(settings.model, "cuda:0") if _half() else None
    if found is None:
        settings = tiny.config(
            f"model.quantisation={kind}", "model.lora_rank=8", "model.dtype=bfloat16"
        )
        found = loading_options(settings.model, "cuda:0")
    quantised = found["quantization_config"]
    assert (quantised.load_in_4bit, quantised.load_in_8bit) == (four, not four)
    assert quantised.bnb_4bit_quant_type == "nf4" and found["device_map"] == {"": "cuda:0"}
    with pytest.raises(UsageError, match="needs a GPU"):
        model_device(
            tiny.config(f"model.quantisation={kind}", "model.lora_rank=8", "model.device=cpu").model
        )


def _half() -> bool:
    import torch

    return torch.cuda.is_available()


def test_the_adapter_is_pefts() -> None:
    from peft import LoraConfig

    assert adapter_options(tiny.config("model.lora_rank=0").model) is None
    given = ("model.lora_rank=4", "model.lora_targets=[q_proj, v_proj]")
    found = LoraConfig(**adapter_options(tiny.config(*given).model))
    assert (found.r, found.target_modules) == (4, {"q_proj", "v_proj"})
    every = LoraConfig(**adapter_options(tiny.config("model.lora_rank=4").model))
    assert every.target_modules == "all-linear"


samples = st.lists(
    st.builds(
        Sample,
        st.builds(Key, st.just(0), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
        st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple),
        st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple),
        st.none(),
        st.floats(-3, 3),
        st.floats(0, 1),
    ),
    max_size=8,
)


@given(samples, st.integers(0, 4))
def test_rows_are_samples_then_fillers(given_: list[Sample], fillers: int) -> None:
    rows = rows_of(given_, len(given_) + fillers, end=1)
    count = len(given_)
    assert len(rows) == count + fillers
    for name in ("prompt_ids", "completion_ids", "env_mask", "rewards", "weights"):
        assert len(getattr(rows, name)) == len(rows)
    assert rows.completion_ids[:count] == [list(sample.ids) for sample in given_]
    assert rows.advantages[:count] == [sample.advantage for sample in given_]
    assert rows.completion_ids[count:] == [[1]] * fillers == rows.prompt_ids[count:]
    assert rows.env_mask[count:] == [[0]] * fillers and rows.rewards[count:] == [None] * fillers
    assert rows.weights[count:] == [0.0] * fillers and rows.logprobs is None
    halves = [rows.part(start, 1) for start in range(len(rows))]
    assert [ids for half in halves for ids in half.completion_ids] == rows.completion_ids


def test_logprobs_are_given_of_all_rows_or_of_none() -> None:
    told = Sample(Key(0, 0), (1,), (2, 3), (-0.5, -0.25), 1.0, 1.0)
    silent = Sample(Key(0, 1), (1,), (2,), None, 1.0, 1.0)
    assert rows_of([told], 2, end=1).logprobs == [[-0.5, -0.25], [0.0]]
    assert rows_of([told, silent], 2, end=1).logprobs is None
    with pytest.raises(ValueError, match="more than the 1 rows"):
        rows_of([told, silent], 1, end=1)
