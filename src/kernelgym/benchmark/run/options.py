"""Options of an eval run: problems, prompts, judging, and the policy.

`EvalSettings` are the options that a run's plan keeps as they are given; `EvalTask` adds the choice
of problems, and `PolicyOptions` are the options of policies. The command line takes its options
from these classes, and their descriptions are its help.

Contract: frozen data; nothing is checked here. May import nouns, feedback and prompts only.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.feedback import FEEDBACK_TOKENS
from kernelgym.prompts.context import Context
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.observer import HISTORY_TOKENS
from kernelgym.types import Problem


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """Options that decide prompts and verdicts, as a run's plan keeps them."""

    suite: str = "KernelBench"
    """Suite of the problems, or the path of a folder of problems."""
    sizes: str = "full"
    """Sizes of KernelBench's problems: full, or small for a laptop."""
    samples: int = 1
    """Number of episodes of each problem."""
    turns: int = 1
    """Largest number of turns of an episode."""
    seed: int = 0
    """Seed of the sampling, for policies that can be seeded."""
    language: str = "triton"
    """Language of the kernels."""
    device: str = "cpu"
    """Device on which kernels are judged, and which prompts describe."""
    ruleset: str = "strict"
    """Rules of the verdicts: strict or kernelbench."""
    precision: str = ""
    """Precision in place of the ruleset's: own (the problem's), fp32, fp16 or bf16."""
    timing_baseline: str = ""
    """Reference against which kernels are timed, in place of the ruleset's: eager, compile or best.
    The last two need what `kernelgym baseline` prepares."""
    run_seconds: float | None = None
    """Seconds that loading and all judged calls of one kernel may take, in place of the ruleset's
    60; the verdicts' ruleset says so in its name."""
    timing: bool = True
    """Time correct kernels; --no-timing judges correctness only."""
    prompt: str = "full"
    """Kind of the prompt: full, short, or kernelbench (its own, from KERNELBENCH_ROOT)."""
    examples: int | str = "one_shot"
    """Worked examples in the prompt: zero_shot, one_shot, few_shot or a number."""
    hardware: str | Hardware | Mapping[str, Any] | None = None
    """Device facts in the prompt: a GPU's name such as H100, or JSON: {"name": "NVIDIA H200"}."""
    retrieval: Any = None
    """Index of solved problems that are shown as examples, such as synthetic."""
    prompt_tokens: int | None = None
    """Largest number of tokens of a prompt; no limit if not given."""
    context: str | Context | Mapping[str, Any] = "recent"
    """Earlier turns that a prompt shows: last, recent, best, kernels, window, whole or
    transcript."""
    context_tokens: int = HISTORY_TOKENS
    """Largest number of tokens for earlier turns."""
    reward: str = "stage2"
    """Reward preset that scores the turns."""
    stop_when: str = "correct"
    """Rule that ends an episode early: correct, never, speedup:<x> or no_improvement:<k>."""
    feedback_level: str = "standard"
    """Level of detail of the feedback: minimal, standard or profile."""
    feedback_tokens: int = FEEDBACK_TOKENS
    """Largest number of tokens of a turn's feedback."""


@dataclass(frozen=True, kw_only=True)
class EvalTask(EvalSettings):
    """Options of a run before its problems are chosen."""

    level: int | None = None
    """Level of the problems; all levels if not given."""
    problems: str | int | Sequence[str | int] | Sequence[Problem] | None = None
    """Ids, numbers or ranges of the problems, such as 1-20,33; all of the level if not given."""
    split: str | None = None
    """Split of the problems, such as test."""
    limit: int | None = None
    """Largest number of problems; the first ones of the choice are taken."""
    exclude_degenerate: bool = False
    """Leave out problems that a worthless kernel passes."""


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """Options of policies; None leaves an option to the policy's own default."""

    model: str | None = None
    """Name of the model at the endpoint; for policy tinker, name of the base model."""
    endpoint: str | None = None
    """Address of the API, such as http://localhost:8000/v1; $OPENAI_BASE_URL, or OpenAI's, if not
    given."""
    api: str | None = None
    """Kind of API that policy openai calls: chat or responses."""
    api_key_env: str | None = None
    """Environment variable that holds the API key; OPENAI_API_KEY if not given."""
    temperature: float | None = None
    """Temperature of the sampling; the server's own if not given."""
    top_p: float | None = None
    """Share of the most likely tokens' probability that is kept in sampling."""
    max_tokens: int | None = None
    """Largest number of tokens of an answer, thinking included."""
    reasoning_effort: str | None = None
    """Reasoning effort of a reasoning model, such as low or high."""
    extra_body: str | Mapping[str, Any] | None = None
    """Additional fields of a request's body, as JSON."""
    seeded: bool = False
    """Send a seed with each request, to a server that takes one (chat API)."""
    timeout_s: float | None = None
    """Seconds that one request may take."""
    retries: int | None = None
    """Number of times that a failed request is made again."""
    rpm: float | None = None
    """Largest number of requests in a minute, retries included."""
    tpm: float | None = None
    """Largest number of tokens in a minute; an answer counts as --max-tokens."""
    shares: tuple[float, float, float] | None = None
    """Shares of right, wrong and cheating answers of the scripted policy, such as 0.5 0.3 0.2."""
    policy_device: str | None = None
    """Device of the model of policy hf; the first GPU if not given."""
    batch: int | None = None
    """Largest number of answers that policy hf generates together."""
    language: str = "triton"
    """Language of the kernels, which every kind of policy may use."""
    device: str = "cpu"
    """Device on which kernels are judged, which every kind of policy may use."""

    def refuse_others(self, kind: str, *used: str) -> None:
        """Refuse options that a kind of policy does not use.

        Args:
            kind: The kind of policy.
            *used: Names of the options that it uses.

        Raises:
            UsageError: If another option was given; the message names it.
        """
        for field in dataclasses.fields(PolicyOptions):
            if field.name in (*used, "language", "device"):
                continue
            if (value := getattr(self, field.name)) != field.default:
                option = f"--{field.name.replace('_', '-')}"
                raise UsageError(
                    f"{option} {value} has no use with policy {kind!r}, which takes "
                    f"{', '.join(used) or 'no options'}; leave it out"
                )


def json_object(option: str, given: str) -> dict[str, Any]:
    """Return the JSON object in an option's text.

    Args:
        option: Name of the option, for messages.
        given: Text of the option.

    Raises:
        UsageError: If the text is not a JSON object.
    """
    try:
        found = json.loads(given)
        json.dumps(found, allow_nan=False)
    except ValueError as error:
        raise UsageError(f"{option} takes JSON, got {given!r}: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{option} takes a JSON object, got {given!r}")
    return found
