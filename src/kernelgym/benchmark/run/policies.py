"""Policies of eval runs by name, and the entry point for other packages' policies.

A policy is named by its kind, followed by a colon and a target if the kind takes one: ``scripted``,
``openai``, ``folder:RUNS``, ``replay:RUN``. Other packages add kinds by the entry-point group
``kernelgym.policies``: names of entries are kinds, and their values are functions
``make(target: str, options: PolicyOptions) -> EvalPolicy``.

Contract: `make_policy` opens no connection and loads no model; `EvalPolicy.check` does. An option
that a kind does not use is refused, never ignored.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from kernelgym.benchmark.run.generations import AnswerRequest, Generation
from kernelgym.benchmark.run.options import PolicyOptions
from kernelgym.errors import KernelgymError, PolicyFailure, UnknownName, UsageError

GROUP = "kernelgym.policies"
"""Entry-point group of other packages' policies."""
POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "openai": "kernelgym.benchmark.run.openai_policy:make",
        "folder": "kernelgym.benchmark.run.replay_policies:make_folder",
        "replay": "kernelgym.benchmark.run.replay_policies:make_replay",
        "scripted": "kernelgym.benchmark.run.scripted_policy:make",
    }
)
"""Kinds of policies in this package, with the functions that make them."""


class ProviderFailure(PolicyFailure):
    """The provider gave no answer after all retries.

    Args:
        message: Last message of the provider.
        tries: Number of requests that were made.
        usd: Largest possible cost in US dollars; None if no price is known.
    """

    def __init__(self, message: str, tries: int = 1, usd: float | None = None) -> None:
        super().__init__(message)
        self.tries, self.usd = tries, usd

    def __reduce__(self) -> tuple[type[ProviderFailure], tuple[str, int, float | None]]:
        return type(self), (str(self), self.tries, self.usd)


class RunStopped(KernelgymError):
    """The run must stop; the message says why and what to do.

    No further answer is requested, and answers that were already requested are kept.
    """


class AnswerMissing(PolicyFailure):
    """The recorded run does not have the requested answer."""


@runtime_checkable
class EvalPolicy(Protocol):
    """Source of the answers of an eval run; several answers are awaited at once.

    A class that inherits from it needs `settings` and `answer` only.
    """

    missing: str = ""
    """Description of what the policy lacks, such as an API key, as far as that is known without a
    connection; empty if nothing is known to be missing."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON data that decides the answers: ``kind``, ``model`` and the sampling options."""
        ...

    async def check(self) -> None:
        """Check that the policy can answer, before the run begins.

        Raises:
            UsageError: If it cannot answer; the message says what to do.
        """
        return None

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return one answer.

        Raises:
            PolicyFailure: If this answer cannot be had; its episode is cut.
            Exception: If every request would fail; the exception ends the run.
        """
        ...

    async def close(self) -> None:
        """Release connections, models and processes."""
        return None


Factory = Callable[[str, PolicyOptions], EvalPolicy]


def make_policy(named: str, options: PolicyOptions | None = None) -> EvalPolicy:
    """Return the policy of a name such as ``openai`` or ``replay:runs/old``.

    Raises:
        UnknownName: If there is no such kind.
        UsageError: If it lacks a package, or an option makes no sense.
    """
    kind, _, target = named.partition(":")
    options = options or PolicyOptions()
    if kind in POLICIES:
        module, _, name = POLICIES[kind].partition(":")
        factory: Factory = getattr(importlib.import_module(module), name)
        return factory(target, options)
    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    if kind not in others:
        raise UnknownName(
            "policy",
            named,
            (*POLICIES, *others),
            f"Other packages add policies by the entry-point group {GROUP!r}.",
        )
    try:
        factory = others[kind].load()
    except ImportError as error:
        raise UsageError(
            f"policy {kind!r} needs a package that is not installed: {error}; install it, or "
            f"choose another policy ({', '.join(POLICIES)})"
        ) from None
    return factory(target, options)
