"""Judge a kernel inside a pretrained model, as in KernelBench's level 4.

    python examples/21_pretrained_model.py

Needs `pip install transformers`. A tiny GPT-2 with random weights takes the place of a model that
`kernelgym fetch KernelBench/L4/7` would download. The answer copies nothing: it loads the model
and replaces its activations by a kernel, and leaves the rest to PyTorch.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from transformers import GPT2Config, GPT2LMHeadModel

from kernelgym import Kernel, LocalEvaluator, get_problem

PROBLEM = """
import torch
from transformers import AutoConfig, AutoModelForCausalLM


class Model(torch.nn.Module):
    def __init__(self, model_name, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(model_name, config=config)

    def forward(self, x):
        return self.model(x).logits


model_name = "example/tiny-gpt2"
config = AutoConfig.from_pretrained(model_name)


def get_inputs():
    return [torch.randint(0, config.vocab_size, (2, 16))]


def get_init_inputs():
    return [model_name, config]
"""

ANSWER = """
import torch
import triton
import triton.language as tl
from transformers import AutoModelForCausalLM


@triton.jit
def gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    tl.store(y_ptr + at, y, mask=at < n)


class OwnGelu(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1024)
        return y


class ModelNew(torch.nn.Module):
    def __init__(self, model_name, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(model_name, config=config)
        for block in self.model.transformer.h:
            block.mlp.act = OwnGelu()

    def forward(self, x):
        return self.model(x).logits
"""


def save_as_fetched(cache: Path) -> None:
    """Save the tiny model as `kernelgym fetch` leaves a real one in its cache folder."""
    place = cache / "models" / "models--example--tiny-gpt2"
    config = GPT2Config(
        vocab_size=97, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    GPT2LMHeadModel(config).save_pretrained(place / "snapshots" / "random")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("random")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELGYM_CACHE"] = folder
        save_as_fetched(Path(folder))
        path = Path(folder) / "problem.py"
        path.write_text(PROBLEM)
        with LocalEvaluator() as judge:
            for source in (ANSWER, ANSWER.replace("x * tl", "tl.maximum(x, 0.0) * tl")):
                verdict = judge.evaluate(get_problem(str(path)), Kernel(source, "triton"))
                print(f"{verdict.status}: {verdict.message}")
                if verdict.custom_share is not None:
                    print(f"the kernel does {verdict.custom_share:.0%} of the model's work")
