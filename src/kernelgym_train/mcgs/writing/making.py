"""`make_writer`: the writer of kernels that a search's settings name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym.benchmark.run.options import PolicyOptions
from kernelgym.benchmark.run.plan import PLAN_FILE
from kernelgym.benchmark.run.policies import EvalPolicy, make_policy
from kernelgym.benchmark.run.spending import SpendingCap, priced
from kernelgym.paths import cache_folder
from kernelgym_train.mcgs.settings import SearchSettings
from kernelgym_train.mcgs.task import read_kernel
from kernelgym_train.mcgs.writing.policies import CommandPolicy, SearchReplayPolicy
from kernelgym_train.mcgs.writing.writer import KernelWriter

_RETRIES = 3
_OPTION = re.compile(
    r"--(endpoint|api-key-env|api|model|max-tokens|temperature|timeout-s|tpm|rpm)\b"
)
_GIVEN = (
    *("model", "endpoint", "api_key_env", "max_tokens", "temperature", "reasoning_effort"),
    *("rpm", "tpm"),
)
_SERVED = ("openai", "tinker")


def make_writer(settings: SearchSettings) -> KernelWriter | None:
    """Return the writer that settings name; None for a search by rules alone.

    No connection is made; `KernelWriter.check` does that.

    Raises:
        UnknownName: If there is no such policy.
        UsageError: If it lacks a key or a package, or an option does not fit.
    """
    if not settings.has_writer:
        return None
    try:
        policy = _policy(settings)
        if policy.missing:
            raise UsageError(policy.missing)
        cap = None
        if settings.llm_tokens is not None:
            cap = SpendingCap(settings.llm_tokens, unit="tokens", option="llm_tokens")
        policy = priced(policy, settings.price, settings.max_usd, token_cap=cap)
    except UsageError as error:
        raise _in_settings(error) from None
    return KernelWriter(
        policy,
        cache=cache_folder() / "answers",
        repairs=settings.llm_repairs,
        free_moves=settings.free_moves,
        retrieval=settings.llm_retrieval or None,
        seed=settings.seed,
    )


def check_writer(writer: KernelWriter) -> None:
    """Check that a writer can answer.

    Raises:
        UsageError: If it cannot; the message names the search's settings.
    """
    try:
        writer.check()
    except UsageError as error:
        raise _in_settings(error) from None


def _policy(settings: SearchSettings) -> EvalPolicy:
    named = settings.proposer or "openai"
    kind, _, target = named.partition(":")
    if kind == "command":
        return CommandPolicy(target, settings.llm_timeout_s)
    if kind == "replay" and not (Path(target) / PLAN_FILE).exists():
        return SearchReplayPolicy(Path(target))
    given: dict[str, Any] = {name: getattr(settings, f"llm_{name}") for name in _GIVEN}
    if kind == "openai":
        given |= {"api": settings.llm_api, "retries": _RETRIES}
    if kind in _SERVED:
        given["timeout_s"] = settings.llm_timeout_s
    known = {name: value for name, value in given.items() if value not in (None, "")}
    language = settings.language
    if not language and settings.kernel:
        language = read_kernel(Path(settings.kernel), "").language
    language = language or "cpp"
    options = PolicyOptions(**known, language=language, device=settings.devices(language)[0])
    return make_policy(named, options)


def _in_settings(error: UsageError) -> UsageError:
    """Return an error of ``kernelgym eval`` reworded to name the search's settings."""
    return UsageError(_OPTION.sub(r"--llm-\1", str(error)))
