"""An estimate of the GPU memory that a training run takes, from its configuration.

Contract: arithmetic on the model's shape, which is read from its configuration without loading a
weight; each part is named, so that one sees what to change. It is an estimate of the peak within
about a fifth, for dense models, and nothing is measured. The trainer's process keeps what it once
took, so a judge on the same GPU comes on top of its peak.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kernelgym import UsageError
from kernelgym.devices import CONTEXT_BYTES
from kernelgym_train.config.config import Config
from kernelgym_train.config.sections import JudgeConfig
from kernelgym_train.models import load_shape

_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
_QUANTISED = {"4bit": 0.57, "8bit": 1.1}
"""Bytes of one weight by quantisation, with its scales and the parts that stay unquantised."""
_PER_TOKEN_AND_LAYER = 18.0
"""Activations of one token that a layer keeps for its backward pass, as multiples of the hidden
size."""
_OVERHEAD_BYTES = 1.5e9
"""Bytes of CUDA's context, of cuBLAS and of fragmentation."""
_JUDGE_CONTEXTS = 3
"""Number of CUDA contexts for each worker, without the waiting candidates: its own, the
candidate's, and that of either the watched second run or the reference."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Estimated GPU memory of a training run, in bytes by purpose."""

    weights: float
    trained: float
    """Bytes of the adapter, and of gradients and Adam's two moments of what is trained."""
    generation: float
    """Bytes of keys and values of all answers that are generated at once."""
    learning: float
    """Bytes of activations and logits of a micro-batch."""
    overhead: float
    judge: float = 0.0
    """Bytes that the judge takes on the same GPU."""

    @property
    def peak(self) -> float:
        """Peak of GPU memory in bytes: of generating or learning, plus the judge's part."""
        turns = max(self.generation, self.learning)
        return self.weights + self.trained + turns + self.overhead + self.judge

    def lines(self) -> list[str]:
        """Return the estimate as lines for a reader."""
        found = [f"{name:<11}{value / 2**30:7.1f} GiB" for name, value in asdict(self).items()]
        return [*found, f"{'peak':<11}{self.peak / 2**30:7.1f} GiB"]


def estimate_memory(
    config: Config, *, half: bool = True, judged_bytes: int | None = None
) -> MemoryEstimate:
    """Return an estimate of the memory that a run takes on its model's GPU.

    Args:
        config: The configuration.
        half: Whether ``model.dtype=auto`` means two bytes, as on a GPU.
        judged_bytes: Memory that judging the largest problem takes on the same GPU, in bytes
            (`kernelgym_train.launch.reference_sizes.ReferenceSizes.on_gpu`); None if kernels are
            judged elsewhere.

    Raises:
        UsageError: If the model's configuration is not found.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model, sampling = config.model, config.sampling
    shape = load_shape(model)
    try:
        with torch.device("meta"):
            empty: Any = AutoModelForCausalLM.from_config(shape)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"the configuration of model.id={model.id!r} cannot be read: {reason}"
        ) from None
    text = shape.get_text_config()
    parameters = sum(weight.numel() for weight in empty.parameters())
    width = _BYTES.get(model.dtype, 2.0 if half else 4.0)
    per_weight = _QUANTISED.get(model.quantisation, width)
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    layers, hidden = text.num_hidden_layers, text.hidden_size
    longest = sampling.max_prompt_tokens + sampling.max_new_tokens
    if model.lora_rank:
        adapted = _adapter_parameters(empty, model.lora_rank, model.lora_targets)
        saved = sum(
            weight.numel()
            for name, weight in empty.named_parameters()
            if any(f".{part}." in f".{name}" for part in model.modules_to_save)
        )
        trained = (adapted + saved) * 16.0  # in 32 bits: itself, its gradient, two moments
    else:
        trained = parameters * 3.0 * width
    tokens = config.optimiser.micro_batch * longest
    layer = tokens * hidden * _PER_TOKEN_AND_LAYER * width
    kept = tokens * hidden * width * layers + layer
    activations = kept if model.gradient_checkpointing else layer * layers
    logits = min(tokens, 4096) * text.vocab_size * 4.0 * 2  # TRL makes them in pieces
    return MemoryEstimate(
        weights=parameters * per_weight,
        trained=trained,
        generation=sampling.batch_size * longest * layers * 2 * heads * head * width,
        learning=activations + logits,
        overhead=_OVERHEAD_BYTES,
        judge=0.0 if judged_bytes is None else _judge_bytes(config.judge, judged_bytes),
    )


def _judge_bytes(judge: JudgeConfig, judged_bytes: int) -> float:
    contexts = (_JUDGE_CONTEXTS + judge.standby) * CONTEXT_BYTES
    return float(judge.workers * (judged_bytes + contexts))


def _adapter_parameters(model: Any, rank: int, targets: tuple[str, ...]) -> int:
    import torch

    head = model.get_output_embeddings()
    everything = targets == ("all-linear",)
    return sum(
        rank * (module.in_features + module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and module is not head
        and (everything or name.rpartition(".")[2] in targets)
    )
