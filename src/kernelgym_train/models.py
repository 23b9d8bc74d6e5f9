"""Models and tokenizers of transformers: found, loaded as configured, saved, merged.

Contract: what is not there, or does not fit the machine, is a `UsageError` that says what to do.
Importing this imports no torch; nothing is downloaded but by transformers' own client.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym.devices import CudaDevice, cuda_devices
from kernelgym.hub import asked_once
from kernelgym_train.config.sections import ModelConfig


def gpus() -> tuple[CudaDevice, ...]:
    """Return the GPUs of this machine; none if there is no driver."""
    try:
        return cuda_devices()
    except UsageError:
        return ()


def model_device(config: ModelConfig) -> str:
    """Return the device on which the configured model runs: ``cpu`` or a GPU such as ``cuda:0``.

    Raises:
        UsageError: If a GPU is asked for, or the configuration needs one, and it is not there.
    """
    device = config.device
    there = 0 if device == "cpu" else len(gpus())
    if device == "auto":
        # One process for each GPU, where several train together.
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if there else "cpu"
    if device == "cuda":
        device = "cuda:0"
    if device.startswith("cuda:") and int(device.partition(":")[2]) >= there:
        raise UsageError(
            f"model.device={config.device} is not there: this machine has {there} GPUs; set "
            "model.device=cpu for a small model, or run on a machine with a GPU"
        )
    if device == "cpu" and config.quantisation != "none":
        raise UsageError(
            f"model.quantisation={config.quantisation} needs a GPU, and the model would be on the "
            "CPU; set model.quantisation=none or run on a machine with a GPU"
        )
    return device


def loading_options(config: ModelConfig, device: str) -> dict[str, Any]:
    """Return options for transformers' ``from_pretrained``."""
    import torch

    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if config.dtype != "auto":
        dtype = names[config.dtype]
    else:
        half = device != "cpu" and torch.cuda.is_bf16_supported()
        dtype = torch.bfloat16 if half else torch.float32
    options: dict[str, Any] = {"dtype": dtype}
    if config.revision:
        options["revision"] = config.revision
    if config.quantisation != "none":
        from transformers import BitsAndBytesConfig

        four = config.quantisation == "4bit"
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=four,
            load_in_8bit=not four,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
        options["device_map"] = {"": device}
    return options


def adapter_options(config: ModelConfig) -> dict[str, Any] | None:
    """Return options for peft's LoraConfig; None if all weights are trained."""
    if not config.lora_rank:
        return None
    named = config.lora_targets
    return {
        "r": config.lora_rank,
        "lora_alpha": config.lora_alpha,
        "lora_dropout": config.lora_dropout,
        "target_modules": named[0] if named == ("all-linear",) else list(named),
        "modules_to_save": list(config.modules_to_save) or None,
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }


def load_tokenizer(config: ModelConfig) -> Any:
    """Return the model's tokenizer, padding to the left.

    Raises:
        UsageError: If it is not there.
    """
    from transformers import AutoTokenizer

    own = not config.tokenizer
    options = {"revision": config.revision} if own and config.revision else {}
    name = config.id if own else config.tokenizer
    try:
        tokenizer = _loaded(AutoTokenizer, name, padding_side="left", **options)
    except (OSError, ValueError) as error:
        if own:
            raise _not_found("tokenizer", config, error) from None
        raise UsageError(
            f"model.tokenizer={name!r} cannot be loaded: {' '.join(str(error).split())[:300]}. "
            "Give the name of a tokenizer on the hub, or the path of a folder that holds one"
        ) from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(config: ModelConfig) -> Any:
    """Return the model, without an adapter.

    Raises:
        UsageError: If it is not there or does not fit the machine.
    """
    from transformers import AutoModelForCausalLM

    device = model_device(config)
    try:
        model = _loaded(AutoModelForCausalLM, config.id, **loading_options(config, device))
    except (OSError, ValueError) as error:
        raise _not_found("model", config, error) from None
    except ImportError as error:
        raise UsageError(f"model.quantisation={config.quantisation}: {error}") from None
    return model if config.quantisation != "none" else model.to(device)


def load_shape(config: ModelConfig) -> Any:
    """Return the configuration of the model itself, without loading weights.

    Raises:
        UsageError: If it is not there.
    """
    from transformers import AutoConfig

    options = {"revision": config.revision} if config.revision else {}
    try:
        return _loaded(AutoConfig, config.id, **options)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"the configuration of model.id={config.id!r} cannot be read: {reason}"
        ) from None


def answer_ends(config: ModelConfig, tokenizer: Any) -> tuple[int, ...]:
    """Return the token ids that end an answer: the tokenizer's own, and those declared.

    Args:
        config: The model.
        tokenizer: Tokenizer of the model.

    Raises:
        UsageError: If there is none.
    """
    found = (tokenizer.eos_token_id, *_declared_end_ids(config))
    ends = tuple(dict.fromkeys(each for each in found if each is not None))
    if not ends:
        raise UsageError(
            f"neither tokenizer nor model of model.id={config.id!r} says which token ends an "
            "answer; take a model that does"
        )
    return ends


def context_tokens(shape: Any) -> int | None:
    """Return the number of tokens that a model's context holds; None if unknown."""
    text = shape.get_text_config() if hasattr(shape, "get_text_config") else shape
    found = getattr(text, "max_position_embeddings", None)
    return int(found) if found else None


def known_context(config: ModelConfig) -> int | None:
    """Return the number of tokens that a model's context holds, if its configuration is found."""
    try:
        return context_tokens(load_shape(config))
    except UsageError:
        return None


def save_model(model: Any, tokenizer: Any, folder: str | Path) -> None:
    """Save a model, or its adapter if it has one, with its tokenizer."""
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def merge_adapter(adapter: str | Path, folder: str | Path) -> None:
    """Save an adapter and the model under it as one plain model.

    Args:
        adapter: Folder of the adapter, as `save_model` wrote it.
        folder: Folder in which the merged model is saved.

    Raises:
        UsageError: If there is no adapter, or its model is not found.
    """
    if not (Path(adapter) / "adapter_config.json").is_file():
        raise UsageError(
            f"there is no adapter in {str(adapter)!r} (no adapter_config.json); give the folder "
            "of a finished run with LoRA; one that trains all weights leaves a plain model"
        )
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer

    try:
        model = AutoPeftModelForCausalLM.from_pretrained(str(adapter))
    except (OSError, ValueError) as error:
        raise UsageError(f"the model under {str(adapter)!r} cannot be loaded: {error}") from None
    model.merge_and_unload().save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(str(adapter)).save_pretrained(str(folder))


def weights_digest(model: Any) -> str:
    """Return 16 hexadecimal digits of the trained weights; equal weights give equal digits."""
    import torch

    found = hashlib.sha256()
    weights: Mapping[str, Any] = dict(model.named_parameters())
    for name in sorted(weights):
        weight = weights[name]
        if weight.requires_grad:
            bits = weight.detach().cpu().contiguous().view(torch.uint8)
            found.update(name.encode() + b"\0" + bits.numpy().tobytes())
    return found.hexdigest()[:16]


def _declared_end_ids(config: ModelConfig) -> tuple[int, ...]:
    """Return the ids that a model declares to end an answer.

    Read from its generation configuration, without loading a weight.
    """
    from transformers import GenerationConfig

    options = {"revision": config.revision} if config.revision else {}
    try:
        found = _loaded(GenerationConfig, config.id, **options).eos_token_id
    except (OSError, ValueError):
        return ()
    many = found if isinstance(found, list | tuple) else [found]
    return tuple(int(each) for each in many if each is not None)


def _loaded(kind: Any, name: str, **options: Any) -> Any:
    """Return the object that a class of transformers loads, from this machine or else the hub.

    Raises:
        OSError: If it is not found, with what the hub said.
        ValueError: As the class raises it.
    """
    with asked_once(name) as why:
        try:
            return kind.from_pretrained(name, **options)
        except OSError as error:
            if why:
                raise OSError(f"no local copy, and the hub does not give it ({why})") from error
            raise


def _not_found(what: str, config: ModelConfig, error: Exception) -> UsageError:
    reason = " ".join(str(error).split())[:300]
    return UsageError(
        f"the {what} of model.id={config.id!r} cannot be loaded: {reason}. Give the name of a "
        "model on the hub that this machine can reach, or the path of a folder that holds one"
    )
