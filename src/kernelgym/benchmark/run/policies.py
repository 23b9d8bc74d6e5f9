"""Policies of eval runs, by name, and how others add theirs.

A policy is named by its kind, and by a target after a colon where it has one: ``scripted``,
``openai``, ``folder:RUNS``, ``replay:RUN``. Kinds that are not here come from other packages by the
entry-point group ``kernelgym.policies``: its names are kinds, its values are functions
``make(target: str, options: PolicyOptions) -> EvalPolicy``.

Contract: `make_policy` opens no connection and loads no model; `EvalPolicy.check` does. An option
that a kind has no use for is refused, never ignored.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from kernelgym.benchmark.run.generations import Asked, Generation
from kernelgym.errors import KernelgymError, PolicyFailure, UnknownName, UsageError

__all__ = [
    "GROUP",
    "POLICIES",
    "AnswerMissing",
    "EvalPolicy",
    "PolicyOptions",
    "ProviderFailure",
    "RunStopped",
    "make_policy",
]

GROUP = "kernelgym.policies"
"""The entry-point group of other packages' policies."""
POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "openai": "kernelgym.benchmark.run.remote:make",
        "folder": "kernelgym.benchmark.run.recorded:make_folder",
        "replay": "kernelgym.benchmark.run.recorded:make_replay",
        "scripted": "kernelgym.benchmark.run.scripted:make",
    }
)
"""The kinds that are here."""


class ProviderFailure(PolicyFailure):
    """A provider gave no answer, after all tries.

    Args:
        message: What it said last.
        tries: Requests that were made.
        usd: What they may have cost; None if no price is known.
    """

    def __init__(self, message: str, tries: int = 1, usd: float | None = None) -> None:
        super().__init__(message)
        self.tries, self.usd = tries, usd

    def __reduce__(self) -> tuple[type[ProviderFailure], tuple[str, int, float | None]]:
        return type(self), (str(self), self.tries, self.usd)


class RunStopped(KernelgymError):
    """Ends a run gracefully; the message says why and what to do.

    No further answer is asked for, and those that are under way are kept.
    """


class AnswerMissing(PolicyFailure):
    """A recorded run has no such answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Options of policies; None where the policy's own default counts."""

    model: str | None = None
    endpoint: str | None = None
    api: str | None = None
    api_key_env: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    extra_body: Mapping[str, Any] | None = None
    seeded: bool | None = None
    timeout_s: float | None = None
    retries: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    shares: tuple[float, float, float] | None = None
    """Of right, wrong and cheating answers."""
    policy_device: str | None = None
    batch: int | None = None
    language: str = "triton"
    """Language of the kernels; every policy may read it."""
    device: str = "cpu"
    """On which kernels are judged; every policy may read it."""

    def refuse_others(self, kind: str, *used: str) -> None:
        """Refuse options that a kind of policy has no use for.

        Args:
            kind: The kind.
            *used: Names of the options that it uses.

        Raises:
            UsageError: If another one was given; it names the option.
        """
        for field in dataclasses.fields(self):
            if field.name in (*used, "language", "device"):
                continue
            if (value := getattr(self, field.name)) is not None:
                option = f"--{field.name.replace('_', '-')}"
                raise UsageError(
                    f"{option} {value} has no use with policy {kind!r}, which takes "
                    f"{', '.join(used) or 'no options'}; leave it out"
                )


@runtime_checkable
class EvalPolicy(Protocol):
    """Answers for an eval run; several answers are awaited at once."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What decides its answers, as JSON data: ``kind``, ``model``, sampling options."""

    async def check(self) -> None:
        """Make sure that it can answer, before the run begins.

        Raises:
            UsageError: If it cannot; says what to do.
        """

    async def answer(self, asked: Asked) -> Generation:
        """Return one answer.

        Raises:
            PolicyFailure: If this one cannot be had; the episode is cut.
            Exception: Whatever concerns every request; it ends the run.
        """

    async def close(self) -> None:
        """Let go of connections, models and processes."""


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
