"""A tiny Qwen3 and its tokenizer, built from nothing, and problems that are judged by a script."""

from __future__ import annotations

from typing import Any

from kernelgym import Problem
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Kernel, Status, Verdict

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if think %}<think>\n{% endif %}{% endif %}"
)
TAGS = ("<KERNEL>", "</KERNEL>", "<think>", "</think>")
LINES = tuple(f"class ModelNew: {letter} = 1\n" for letter in "abcdefgh")
"""Any answer that begins with one of these tokens holds a kernel."""


def tokenizer(template: str = TEMPLATE) -> Any:
    """A tokenizer of a few words; anything else is unknown and reads as ``<unk>``."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<|im_end|>", "<|im_start|>", "<unk>"]
    names = [*special, *LINES, "\n"]
    core = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, "<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    from tokenizers import decoders

    core.decoder = decoders.Fuse()
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>"],
        padding_side="left",
    )
    made.add_tokens(list(TAGS))
    made.chat_template = template
    return made


def model(vocab: int, seed: int = 0) -> Any:
    """A random Qwen3 of some ten thousand parameters."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    return Qwen3ForCausalLM(config)


def problems(count: int) -> list[Problem]:
    base = SAMPLE_PROBLEM
    return [
        Problem(f"Tiny/L1/{n}", "Tiny", 1, f"{n}_Add", f"{base.source}\n# {n}\n", family=f"f{n}")
        for n in range(1, count + 1)
    ]


def judge(problem: Problem, kernel: Kernel) -> Verdict:
    """The more of its lines set ``a`` or ``b``, the further a kernel gets."""
    from kernelgym.testing import verdict

    lines = kernel.source.count("class ModelNew: ")
    good = sum(kernel.source.count(f"class ModelNew: {letter} ") for letter in "ab")
    if 2 * good > lines:
        return verdict(Status.CORRECT)
    return verdict(Status.WRONG, trials_passed=min(3, good))


__all__ = ["judge", "model", "problems", "tokenizer"]


SETTINGS = (
    *("env.suite=Tiny", "env.language=triton", "env.ruleset=kernelbench", "env.max_turns=2"),
    *("env.examples=zero_shot", "sampling.problems_per_step=2", "sampling.group_size=4"),
    *("sampling.max_new_tokens=8", "sampling.refill_rounds=1", "optimiser.micro_batch=4"),
    *("optimiser.steps=5", "optimiser.learning_rate=0.01", "model.lora_rank=0"),
    *("model.gradient_checkpointing=false", "model.device=cpu", "run.save_every=2"),
    *("evaluation.every=0", "logging.tokens=true", "logging.tensorboard=false"),
    "logging.live=false",
)


def config(*overrides: str) -> Any:
    """A configuration of a run of five steps."""
    from kernelgym_train.config.config import load_config

    return load_config(None, (*SETTINGS, *overrides))


def run(
    folder: Any, settings: Any, *, resume: bool = False, seed: int = 0, script: Any = judge
) -> Any:
    """Train the tiny model by a configuration; returns (outcome, log)."""
    from kernelgym.testing import ScriptedEvaluator
    from kernelgym_train.backends.trl.train import train
    from kernelgym_train.launch.assembly import make_steps
    from kernelgym_train.run.runlog import RunLog
    from kernelgym_train.run.training import run_stretches

    log = RunLog.resume(folder) if resume else RunLog.create(folder, settings.model_dump(), {})
    words = tokenizer()
    evaluator = log.verdicts(ScriptedEvaluator(script, ruleset=settings.rules))
    steps = make_steps(settings, tuple(problems(6)), evaluator, log=log)

    def stretch(progress: Any) -> Any:
        return train(progress, model(len(words), seed), words)

    return run_stretches(settings, log, steps, stretch), log
