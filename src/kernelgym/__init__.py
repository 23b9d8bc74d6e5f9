"""kernelgym: Gymnasium environments in which models learn to write GPU kernels.

Importing this package registers the environment ids, and nothing more: public names are imported
when they are first used, and torch, Triton, datasets and FAISS only by what needs them.

Ids are ``{KernelBench-L1..L4, Synthetic-L1..L3}-{SingleTurn, MultiTurn}-v0``; see `ENV_IDS`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register, registry

if TYPE_CHECKING:
    from kernelgym.benchmark.numbers.rates import fast_p, pass_at_k
    from kernelgym.benchmark.numbers.speeds import geometric_mean_speedup
    from kernelgym.envs.drivers import play_episode, play_episodes
    from kernelgym.envs.kernel_env import KernelEnv
    from kernelgym.envs.recording import RecordTrajectories, RecordVectorTrajectories
    from kernelgym.envs.spaces import KernelText
    from kernelgym.envs.vector import KernelVectorEnv
    from kernelgym.envs.wrappers import DiscountedReturn, RetrievalObservation
    from kernelgym.episodes.episode import Episode
    from kernelgym.errors import (
        DegenerateProblem,
        JudgeError,
        KernelgymError,
        PolicyFailure,
        ProblemError,
        UnknownName,
        UnsupportedLanguage,
        UsageError,
    )
    from kernelgym.evaluators.awaited import AwaitedEvaluator
    from kernelgym.evaluators.base import EvaluatorBase, EvaluatorWrapper
    from kernelgym.evaluators.cached import CachedEvaluator
    from kernelgym.evaluators.duel import Duel, duel
    from kernelgym.hygiene import Hygiene
    from kernelgym.judge import LocalEvaluator, shared_evaluator
    from kernelgym.languages import LANGUAGES, Language
    from kernelgym.prompts.context import CONTEXTS, Context
    from kernelgym.prompts.observer import Observer
    from kernelgym.records.rescore import rescore
    from kernelgym.records.trajectories import (
        EpisodeRecord,
        append_record,
        read_records,
        write_records,
    )
    from kernelgym.retrieval.part import Retrieval
    from kernelgym.rewards import (
        REWARDS,
        RewardPreset,
        RewardSchedule,
        discounted_returns,
        reward_schedule,
    )
    from kernelgym.rulesets import RULESETS, Ruleset, ruleset
    from kernelgym.suites import Suite, get_problem, suite
    from kernelgym.testing import ScriptedEvaluator
    from kernelgym.types import (
        Answer,
        Capabilities,
        Evaluator,
        EvaluatorStatus,
        Feedback,
        Finding,
        Job,
        Kernel,
        Message,
        Mismatch,
        Problem,
        Reply,
        Score,
        Severity,
        Status,
        Timing,
        Trajectory,
        Turn,
        Verdict,
    )

__all__ = [
    "CONTEXTS",
    "ENV_IDS",
    "LANGUAGES",
    "REWARDS",
    "RULESETS",
    "Answer",
    "AwaitedEvaluator",
    "CachedEvaluator",
    "Capabilities",
    "Context",
    "DegenerateProblem",
    "DiscountedReturn",
    "Duel",
    "Episode",
    "EpisodeRecord",
    "Evaluator",
    "EvaluatorBase",
    "EvaluatorStatus",
    "EvaluatorWrapper",
    "Feedback",
    "Finding",
    "Hygiene",
    "Job",
    "JudgeError",
    "Kernel",
    "KernelEnv",
    "KernelText",
    "KernelVectorEnv",
    "KernelgymError",
    "Language",
    "LocalEvaluator",
    "Message",
    "Mismatch",
    "Observer",
    "PolicyFailure",
    "Problem",
    "ProblemError",
    "RecordTrajectories",
    "RecordVectorTrajectories",
    "Reply",
    "Retrieval",
    "RetrievalObservation",
    "RewardPreset",
    "RewardSchedule",
    "Ruleset",
    "Score",
    "ScriptedEvaluator",
    "Severity",
    "Status",
    "Suite",
    "Timing",
    "Trajectory",
    "Turn",
    "UnknownName",
    "UnsupportedLanguage",
    "UsageError",
    "Verdict",
    "__version__",
    "append_record",
    "discounted_returns",
    "duel",
    "fast_p",
    "geometric_mean_speedup",
    "get_problem",
    "pass_at_k",
    "play_episode",
    "play_episodes",
    "read_records",
    "rescore",
    "reward_schedule",
    "ruleset",
    "shared_evaluator",
    "suite",
    "write_records",
]

__version__ = "0.2.0"

_NAMES_BY_MODULE = {
    "envs.drivers": "play_episode play_episodes",
    "evaluators.awaited": "AwaitedEvaluator",
    "prompts.context": "CONTEXTS Context",
    "envs.kernel_env": "KernelEnv",
    "episodes.episode": "Episode",
    "errors": "DegenerateProblem JudgeError KernelgymError PolicyFailure ProblemError UnknownName "
    "UnsupportedLanguage UsageError",
    "hygiene": "Hygiene",
    "evaluators.base": "EvaluatorBase EvaluatorWrapper",
    "evaluators.cached": "CachedEvaluator",
    "evaluators.duel": "Duel duel",
    "judge": "LocalEvaluator shared_evaluator",
    "languages": "LANGUAGES Language",
    "prompts.observer": "Observer",
    "envs.recording": "RecordTrajectories RecordVectorTrajectories",
    "records.rescore": "rescore",
    "retrieval.part": "Retrieval",
    "rewards": "REWARDS RewardPreset RewardSchedule discounted_returns reward_schedule",
    "rulesets": "RULESETS Ruleset ruleset",
    "benchmark.numbers.rates": "fast_p pass_at_k",
    "benchmark.numbers.speeds": "geometric_mean_speedup",
    "envs.spaces": "KernelText",
    "suites": "Suite get_problem suite",
    "testing": "ScriptedEvaluator",
    "records.trajectories": "EpisodeRecord append_record read_records write_records",
    "types": "Answer Capabilities Evaluator EvaluatorStatus Feedback Finding Job Kernel Message "
    "Mismatch Problem Reply Score Severity Status Timing Trajectory Turn Verdict",
    "envs.vector": "KernelVectorEnv",
    "envs.wrappers": "DiscountedReturn RetrievalObservation",
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    try:
        module = _MODULE_OF[name]
    except KeyError:
        raise AttributeError(f"module 'kernelgym' has no attribute {name!r}") from None
    value = globals()[name] = getattr(importlib.import_module(f"kernelgym.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register_envs() -> tuple[str, ...]:
    """Register every id, with string entry points, and return the ids."""
    ids = []
    for suite_name, levels in (("KernelBench", 4), ("Synthetic", 3)):
        for level in range(1, levels + 1):
            for mode, max_turns in (("SingleTurn", 1), ("MultiTurn", 4)):
                env_id = f"{suite_name}-L{level}-{mode}-v0"
                ids.append(env_id)
                if env_id in registry:  # the package was imported anew
                    continue
                register(
                    env_id,
                    entry_point="kernelgym.envs.kernel_env:KernelEnv",
                    vector_entry_point="kernelgym.envs.vector:KernelVectorEnv",
                    nondeterministic=True,
                    kwargs={"suite": suite_name, "level": level, "max_turns": max_turns},
                )
    return tuple(ids)


ENV_IDS = _register_envs()
"""Every registered id."""
