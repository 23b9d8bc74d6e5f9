"""Runs a problem's own code: returns the names it defines and the sizes of inputs and outputs.

Used only in the worker process, where a problem's source is trusted code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch

from kernelgym.judge.tensors import bytes_of
from kernelgym.types import Problem


def names_of(source: str, name: str) -> dict[str, Any]:
    """Run a problem's code and return the names that it defines.

    A source is compiled only once.

    Args:
        source: The problem's source, trusted code.
        name: File name of the source in tracebacks.

    Raises:
        Exception: Whatever the code raises.
    """
    names: dict[str, Any] = {"__name__": "problem"}
    exec(_code(source, name), names)
    return names


def input_bytes(problem: Problem) -> int:
    """Return the bytes of one set of inputs; 0 if unknown."""
    return _input_bytes(problem.source, problem.id)


def output_bytes(problem: Problem) -> int:
    """Return the bytes of the output; of the inputs if unknown."""
    return _output_bytes(problem.source, problem.id)


@lru_cache(maxsize=64)
def _code(source: str, name: str) -> Any:
    return compile(source, f"<{name}>", "exec")


# The code runs on torch's ``meta`` device, which computes shapes only, so tensors take neither time
# nor memory. Inputs are counted apart: the first forward pass there takes torch 2 s of imports.
@lru_cache(maxsize=256)
def _input_bytes(source: str, name: str) -> int:
    try:
        with torch.device("meta"), torch.no_grad():
            return bytes_of(names_of(source, name)["get_inputs"]())
    except Exception:
        return 0  # some code needs values, which the meta device does not have


@lru_cache(maxsize=256)
def _output_bytes(source: str, name: str) -> int:
    try:
        with torch.device("meta"), torch.no_grad(), _without_weights(source):
            names = names_of(source, name)
            drawn = names["get_inputs"]()
            return bytes_of(names["Model"](*names["get_init_inputs"]())(*drawn))
    except Exception:
        return _input_bytes(source, name)


@contextmanager
def _without_weights(source: str) -> Iterator[None]:
    """Construct, in a block, models of transformers from their configurations, without weights."""
    if "from_pretrained" not in source:
        yield
        return
    from transformers import PreTrainedModel

    def shaped(cls: Any, name: str, /, *_: object, config: Any = None, **__: object) -> Any:
        return cls(config if config is not None else cls.config_class.from_pretrained(name)).eval()

    loads = PreTrainedModel.__dict__["from_pretrained"]
    PreTrainedModel.from_pretrained = classmethod(shaped)
    try:
        yield
    finally:
        PreTrainedModel.from_pretrained = loads
