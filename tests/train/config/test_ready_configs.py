"""The configurations that come with the package: each loads, and the one for a 7B model fits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError
from kernelgym.retrieval.synthetic import synthetic_index
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym_train.backends.tinker.losses import loss_of
from kernelgym_train.backends.tinker.prices import PRICES
from kernelgym_train.cli import main
from kernelgym_train.config.config import load_config, ready_configs
from kernelgym_train.config.settings import keys_that_differ
from kernelgym_train.demo.folders import PRACTICE, write_problems
from kernelgym_train.demo.learning import RULES, learning_config
from kernelgym_train.demo.model import SMALL
from kernelgym_train.demo.plan import CPU_PLAN, on_backend
from kernelgym_train.demo.splits import Splits
from kernelgym_train.demo.stages import Prepared, config_of
from support import tiny

NAME = "qwen2_5_coder_7b_kernelbench"
DEMO = "tinker_synthetic"
PLAN = (
    f"sampling.max_new_tokens={CPU_PLAN.max_new_tokens}",
    f"sampling.batch_size={CPU_PLAN.batch}",
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHAPE = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""Of Qwen2.5-7B, from which the Coder is made: 7,615,616,512 weights."""
PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.{operator}


def get_inputs():
    return [torch.rand({size}, 1 << 20)]


def get_init_inputs():
    return []
"""
# Named as in KernelBench, whose split goes by them: (number and name, operator, MiB / 4 of input).
PROBLEMS = (
    ("1_Square_matrix_multiplication_", "exp()", 64),
    ("21_Sigmoid", "sigmoid()", 2048),  # 8 GiB, and as much again of output: above the budget
    ("40_LayerNorm", "sum(0)", 512),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder without weights, and a checkout of problems beside it."""
    root = tmp_path_factory.mktemp("ready")
    words = tiny.tokenizer(TEMPLATE)
    words.save_pretrained(root / "model")
    (root / "model" / "config.json").write_text(json.dumps(SHAPE))
    level = root / "bench" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for name, operator, size in PROBLEMS:
        (level / f"{name}.py").write_text(PROBLEM.format(operator=operator, size=size))
    return root


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``python -m kernelgym_train.demo --prepare`` leaves, but for the weights."""
    root = tmp_path_factory.mktemp("demonstration")
    start = root / "runs" / "demo" / "start"
    tiny.tokenizer(TEMPLATE).save_pretrained(start)
    size = {
        "hidden_size": SMALL.hidden,
        "num_hidden_layers": SMALL.layers,
        "intermediate_size": SMALL.feed_forward,
        "num_attention_heads": SMALL.heads,
        "num_key_value_heads": SMALL.key_value_heads,
        "max_position_embeddings": SMALL.context,
        "vocab_size": CPU_PLAN.vocabulary,
    }
    (start / "config.json").write_text(json.dumps(SHAPE | size))
    first, second, third = SyntheticSuite().problems(level=1, ids="1-3")
    folders = {PRACTICE: (first, second), "compositions": (third,)}
    write_problems(root / "runs" / "demo" / "problems", folders)
    return root


@pytest.fixture
def planned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Dry-run the configuration for a GPU of so many GiB; returns the exit code."""
    monkeypatch.setenv("KERNELBENCH_ROOT", str(folder / "bench"))
    monkeypatch.chdir(folder)

    def plan(gib: int, *settings: str) -> int:
        model = f"model.id={folder / 'model'}"
        return main(["--config", NAME, "--dry-run", "--assume-gpu", str(gib), model, *settings])

    return plan


def memory(out: str) -> dict[str, float]:
    return {n: float(x) for n, x in re.findall(r"^memory +(\w+) +([\d.]+) GiB$", out, re.M)}


@pytest.mark.slow
def test_it_fits_where_it_says_it_does(
    planned: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(80) == 0
    out = capsys.readouterr().out
    part = memory(out)
    assert "fits into 80 GiB" in out and part["peak"] < 80
    # 7,615,616,512 weights of two bytes, and what the comments in the file say of the others.
    assert part["weights"] == 14.2 and part["trained"] == 1.2 and part["generation"] == 28.0
    assert part["learning"] < part["generation"]
    assert part["judge"] > 3 * 2, "the largest problem left takes 2 GiB, three times over"
    assert "1 to train on" in out and "1 to evaluate on" in out, "one is above the budget"
    assert not (folder / "runs").exists()


@pytest.mark.slow
def test_a_small_gpu_is_refused_with_the_fix(
    planned: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(24) == 2
    said = capsys.readouterr().err
    assert "a GPU that has 24" in said and said.count("\n") == 1
    for way in ("judge.device=cuda:1", "judge.memory_bytes", "sampling.batch_size", "4bit"):
        assert way in said


def test_a_second_gpu_takes_the_judge_and_every_problem(
    planned: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other way that the file names in a comment."""
    text = ready_configs()[NAME].read_text()
    other = re.findall(r"^  #   (\w+): (\S+)$", text, re.MULTILINE)
    assert [name for name, _ in other] == ["device", "workers", "memory_bytes"]
    assert planned(80, *(f"judge.{name}={value}" for name, value in other)) == 0
    out = capsys.readouterr().out
    assert memory(out)["judge"] == 0 and "2 to train on" in out


def test_every_ready_configuration_loads_by_name_and_by_path() -> None:
    assert NAME in ready_configs()
    for name, path in ready_configs().items():
        config = load_config(name)
        assert config.model_dump() == load_config(path).model_dump()
        assert config.run.name == name, "or two of them would share a folder"
        for line in path.read_text().splitlines():
            assert len(line) <= 100, line
    with pytest.raises(UsageError, match=NAME):
        load_config("qwen")


@pytest.mark.usefixtures("sizes_unknown")
def test_tinker_synthetic_fits_the_demonstration(
    demonstration: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folders, prompts and context are looked at by a backend that needs no server."""
    monkeypatch.chdir(demonstration)
    given = ["--backend", "trl", "--config", DEMO, "tinker.base_url=", "--dry-run"]
    assert main(given) == 0
    out = capsys.readouterr().out
    assert "2 to train on" in out and "1 to evaluate on" in out
    assert "context     512 tokens, which hold every prompt with its answer" in out
    assert not (demonstration / "runs" / DEMO).exists()
    assert load_config(DEMO).run.backend == "tinker"


def test_tinker_synthetic_is_the_demonstration_by_trl() -> None:
    """What differs is the learning rate and what a service has no use for, or says otherwise."""
    ours = load_config(DEMO).model_dump()
    theirs = learning_config(Path("runs/demo/start"), Path("runs/demo/main"), 0, PLAN).model_dump()
    differing = {key for key in keys_that_differ(ours, theirs) if not key.startswith("run.")}
    assert differing == {
        *("env.suite", "evaluation.suite", "evaluation.every", "judge.stop_at_first_failure"),
        *("optimiser.steps", "optimiser.learning_rate", "optimiser.kl_beta"),
        *("optimiser.clip_high", "optimiser.micro_batch", "logging.histograms_every"),
        "tinker.base_url",
        *("model.dtype", "model.device", "model.lora_alpha", "model.modules_to_save"),
        *("model.gradient_checkpointing", "sampling.batch_size"),
    }
    assert load_config(DEMO).rules == RULES


def test_tinker_synthetic_is_the_demonstration_there(tmp_path: Path) -> None:
    plan = on_backend(CPU_PLAN, "tinker", ["tinker.base_url=http://127.0.0.1:8004"])
    theirs = config_of(Prepared(plan, 0, tmp_path, Splits((), (), (), (), (), (), ""), {}), "main")
    differing = set(keys_that_differ(load_config(DEMO).model_dump(), theirs.model_dump()))
    assert {key for key in differing if not key.startswith("run.")} == {
        *("env.suite", "evaluation.suite", "evaluation.every", "judge.stop_at_first_failure"),
        *("model.id", "logging.histograms_every"),
        "optimiser.steps",  # `make demo` stops sooner
    }
    assert loss_of(theirs).config == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}


@pytest.mark.parametrize("name", sorted(ready_configs()))
def test_every_number_of_a_configuration_is_justified(name: str) -> None:
    lines = ready_configs()[name].read_text().splitlines()
    numbers = [line for line in lines if re.match(r"  \w+: [\d\[]", line)]
    assert len(numbers) > 10
    assert [line for line in numbers if "  # " not in line] == []


@pytest.mark.parametrize("name", ["kevin", "single_turn"])
def test_model_is_one_the_service_is_known_to_offer(name: str) -> None:
    config = load_config(name)
    assert config.run.backend == "tinker" and config.model.id in PRICES
    assert config.evaluation.every % config.run.save_every == 0, "what is evaluated is kept"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [("kevin", ["env.levels=[1]", "--assume-gpu", "80"]), ("single_turn", ["env.sizes=full"])],
)
def test_tinker_configuration_is_planned_with_its_cost(
    name: str,
    settings: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from kernelgym_train.backends.tinker import backend
    from kernelgym_train.backends.tinker.server_probe import ServedModel

    model = load_config(name).model.id
    monkeypatch.setattr(backend, "reach", lambda url, key: (ServedModel(model, 65536),))
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(folder / "bench"))
    monkeypatch.chdir(folder)
    given = ["--config", name, "--dry-run", f"model.tokenizer={folder / 'model'}", *settings]
    assert main(given) == 0
    out = capsys.readouterr().out
    assert f"model       {model}, adapter of rank" in out and "context     65536" in out
    assert "cost        at most" in out and "USD a step" in out
    assert not (folder / "runs").exists()


def write_words(folder: Path, size: dict[str, int]) -> Path:
    """Write a model without weights that keeps the tiny tokenizer, and return its folder."""
    tiny.tokenizer(TEMPLATE).save_pretrained(folder)
    kind = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128}
    (folder / "config.json").write_text(json.dumps(SHAPE | kind | size))
    return folder


@pytest.mark.usefixtures("sizes_unknown")
def test_raicl_synthetic_fits_a_context_of_1024(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its prompts, entries among them, by a tokenizer of single words."""
    monkeypatch.chdir(tmp_path)
    size = {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 64}
    size |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 1024}
    write_words(tmp_path / "runs" / "raicl" / "start", size | {"vocab_size": 64})
    given = ["--config", "raicl_synthetic", "--dry-run"]
    assert main(given) == 2
    assert "kernelgym index build" in capsys.readouterr().err
    synthetic_index("triton", "cpu").save("indexes/synthetic")
    assert main(given) == 0
    out = capsys.readouterr().out
    assert "retrieval   2 entries of index indexes/synthetic, digest" in out
    assert "context     1024 tokens, which hold every prompt with its answer" in out


@pytest.mark.slow
def test_raicl_kernelbench_fits_where_it_says(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(folder / "bench"))
    monkeypatch.chdir(tmp_path)
    synthetic_index("triton", "gpu").save("indexes/kernelbench")
    model = f"model.id={write_words(tmp_path / 'words', {})}"
    given = ["--config", "raicl_kernelbench", "--dry-run", "--assume-gpu", "80", model]
    assert main(given) == 0
    out = capsys.readouterr().out
    assert "fits into 80 GiB" in out and memory(out)["peak"] < 80
    assert "retrieval   3 entries of index indexes/kernelbench" in out


def test_kevin_is_the_recipe_it_is_named_after() -> None:
    config = load_config("kevin")
    assert (config.samples_per_step, config.credit_rule.gamma) == (8 * 16 * 4, 0.4)
    assert config.optimiser.steps * config.optimiser.updates_per_step == 80
    assert config.credit_rule.constant == config.sampling.max_new_tokens == 16384
    assert config.schedule.at(0).speed == "required" and config.rules.stop_at_first_failure
    with pytest.raises(UsageError, match="cuda"):
        load_config("kevin", ["judge.device=cpu"])
    with pytest.raises(UsageError, match=r"judge\.timing is false"):
        load_config("kevin", ["judge.timing=false"])
