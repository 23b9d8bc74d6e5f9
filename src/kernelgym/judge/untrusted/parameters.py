"""Values that replace a model's parameters by name, at once or in the middle of a window.

Loaded by path in the untrusted process: torch only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Bound before any candidate code runs, so that ordinary monkey-patching does not reach them.
_copy, _no_grad = torch.Tensor.copy_, torch.no_grad
_clone, _copy_all = torch.Tensor.clone, torch._foreach_copy_
_equal, _empty_like = torch.equal, torch.empty_like
_MOST_STAGED_BYTES = 256 << 20


class NewParameters:
    """Holds values of parameters until they are copied.

    Args:
        views_of_file: The function of `buffers.py`.
    """

    def __init__(self, views_of_file: Callable[..., list[torch.Tensor]]) -> None:
        self._views_of_file = views_of_file
        self._coming: list[tuple[str, torch.Tensor]] = []
        self._names: list[str] = []
        self._staged: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def receive(self, values: list[Any], fd: int, size: int) -> None:
        """Keep values; the descriptor is closed.

        Args:
            values: Pairs of a name and a region of the memory file.
            fd: Descriptor of the memory file that holds the values.
            size: Its size in bytes.
        """
        views = self._views_of_file(fd, size, [region for _, region in values])
        self._coming = [(name, view) for (name, _), view in zip(values, views, strict=True)]
        self._names = [name for name, _ in self._coming]

    def copy_to(self, model: Any) -> list[str]:
        """Copy values into parameters, buffers or attributes; return the names not found.

        What holds its value already is not written, so that its version tells a kernel nothing.
        """
        missing, coming = [], self._coming
        self._coming = []
        for name, value in coming:
            target = _found(model, name)
            if isinstance(target, torch.Tensor) and target.shape == value.shape:
                with _no_grad():
                    new = _copy(_empty_like(target), value)
                    if not _equal(target, new):
                        _copy(target, new)
                    if name in self._staged:
                        _copy(self._staged[name][1], value)
            else:
                missing.append(name)
        return missing

    def stage(self, model: Any) -> None:
        """Keep the present values of parameters beside them, for `change` to copy.

        It changes them once, since the first launch of the copying kernel cannot be captured.
        """
        self._staged, left = {}, _MOST_STAGED_BYTES
        for name in self._names:
            target = _found(model, name)
            if isinstance(target, torch.Tensor) and target.nbytes <= left:
                left -= target.nbytes
                self._staged[name] = target.detach(), _clone(target.detach())
        self.change()

    def change(self) -> None:
        """Copy the values beside parameters into them, which PyTorch counts as a change.

        In a captured graph, each replay does so with the values that `arrive` has left there.
        """
        if self._staged:
            targets, values = zip(*self._staged.values(), strict=True)
            with _no_grad():
                _copy_all(list(targets), list(values))

    def arrive(self, model: Any) -> None:
        """Let `change` copy the values that were received; copy others into parameters now."""
        for name, value in self._coming:
            if name in self._staged:
                _copy(self._staged[name][1], value)
        self._coming = [each for each in self._coming if each[0] not in self._staged]
        self.copy_to(model)


def _found(model: Any, name: str) -> Any:
    """Return a parameter, buffer or attribute by its dotted name; None without it."""
    for part in name.split("."):
        model = getattr(model, part, None)
    return model
