"""Values that replace a model's parameters by name, at once or in the middle of a window.

Loaded by path in the untrusted process: torch only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Bound before any candidate code runs, so that ordinary monkey-patching does not reach them.
_copy, _no_grad = torch.Tensor.copy_, torch.no_grad


class NewParameters:
    """Holds values of parameters until they are copied.

    Args:
        views_of_file: The function of `buffers.py`.
    """

    def __init__(self, views_of_file: Callable[..., list[torch.Tensor]]) -> None:
        self._views_of_file = views_of_file
        self._coming: list[tuple[str, torch.Tensor]] = []

    def receive(self, values: list[Any], fd: int, size: int) -> None:
        """Keep values; the descriptor is closed.

        Args:
            values: Pairs of a name and a region of the memory file.
            fd: Descriptor of the memory file that holds the values.
            size: Its size in bytes.
        """
        views = self._views_of_file(fd, size, [region for _, region in values])
        self._coming = [(name, view) for (name, _), view in zip(values, views, strict=True)]

    def copy_to(self, model: Any) -> list[str]:
        """Copy values into parameters, buffers or attributes; return the names not found."""
        missing, coming = [], self._coming
        self._coming = []
        for name, value in coming:
            target = model
            for part in name.split("."):
                target = getattr(target, part, None)
            if isinstance(target, torch.Tensor) and target.shape == value.shape:
                with _no_grad():
                    _copy(target, value)
            else:
                missing.append(name)
        return missing
