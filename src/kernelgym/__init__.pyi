"""The public names of kernelgym, each with the module that defines it.

Type checkers read this file, and `kernelgym.__getattr__` looks a name's module up in it.
"""

from kernelgym.benchmark.numbers.rates import fast_p as fast_p
from kernelgym.benchmark.numbers.rates import pass_at_k as pass_at_k
from kernelgym.benchmark.numbers.speeds import geometric_mean_speedup as geometric_mean_speedup
from kernelgym.envs.drivers import play_episode as play_episode
from kernelgym.envs.drivers import play_episodes as play_episodes
from kernelgym.envs.drivers import step_async as step_async
from kernelgym.envs.infos import as_json as as_json
from kernelgym.envs.kernel_env import KernelEnv as KernelEnv
from kernelgym.envs.recording import (
    RecordTrajectories as RecordTrajectories,
)
from kernelgym.envs.recording import (
    RecordVectorTrajectories as RecordVectorTrajectories,
)
from kernelgym.envs.spaces import KernelText as KernelText
from kernelgym.envs.vector import KernelVectorEnv as KernelVectorEnv
from kernelgym.envs.wrappers import (
    DiscountedReturn as DiscountedReturn,
)
from kernelgym.envs.wrappers import (
    RetrievalObservation as RetrievalObservation,
)
from kernelgym.episodes.episode import Episode as Episode
from kernelgym.errors import (
    DegenerateProblem as DegenerateProblem,
)
from kernelgym.errors import (
    JudgeError as JudgeError,
)
from kernelgym.errors import (
    KernelgymError as KernelgymError,
)
from kernelgym.errors import (
    PolicyFailure as PolicyFailure,
)
from kernelgym.errors import (
    ProblemError as ProblemError,
)
from kernelgym.errors import (
    UnknownName as UnknownName,
)
from kernelgym.errors import (
    UnsupportedLanguage as UnsupportedLanguage,
)
from kernelgym.errors import (
    UsageError as UsageError,
)
from kernelgym.evaluators.awaited import AwaitedEvaluator as AwaitedEvaluator
from kernelgym.evaluators.base import (
    EvaluatorBase as EvaluatorBase,
)
from kernelgym.evaluators.base import (
    EvaluatorWrapper as EvaluatorWrapper,
)
from kernelgym.evaluators.cached import CachedEvaluator as CachedEvaluator
from kernelgym.evaluators.duel import Duel as Duel
from kernelgym.evaluators.duel import duel as duel
from kernelgym.evaluators.ray_evaluator import RayEvaluator as RayEvaluator
from kernelgym.evaluators.remote import RemoteEvaluator as RemoteEvaluator
from kernelgym.hygiene import Hygiene as Hygiene
from kernelgym.judge import LocalEvaluator as LocalEvaluator
from kernelgym.judge import shared_evaluator as shared_evaluator
from kernelgym.languages import LANGUAGES as LANGUAGES
from kernelgym.languages import Language as Language
from kernelgym.prompts.context import CONTEXTS as CONTEXTS
from kernelgym.prompts.context import Context as Context
from kernelgym.prompts.observer import Observer as Observer
from kernelgym.records.rescore import rescore as rescore
from kernelgym.records.trajectories import (
    EpisodeRecord as EpisodeRecord,
)
from kernelgym.records.trajectories import (
    append_record as append_record,
)
from kernelgym.records.trajectories import (
    read_records as read_records,
)
from kernelgym.records.trajectories import (
    write_records as write_records,
)
from kernelgym.retrieval.prompt_part import Retrieval as Retrieval
from kernelgym.rewards import (
    REWARDS as REWARDS,
)
from kernelgym.rewards import (
    RewardPreset as RewardPreset,
)
from kernelgym.rewards import (
    RewardSchedule as RewardSchedule,
)
from kernelgym.rewards import (
    discounted_returns as discounted_returns,
)
from kernelgym.rewards import (
    reward_schedule as reward_schedule,
)
from kernelgym.rulesets import RULESETS as RULESETS
from kernelgym.rulesets import Ruleset as Ruleset
from kernelgym.rulesets import ruleset as ruleset
from kernelgym.suites import Suite as Suite
from kernelgym.suites import get_problem as get_problem
from kernelgym.suites import suite as suite
from kernelgym.testing import ScriptedEvaluator as ScriptedEvaluator
from kernelgym.types import (
    Answer as Answer,
)
from kernelgym.types import (
    Capabilities as Capabilities,
)
from kernelgym.types import (
    Evaluator as Evaluator,
)
from kernelgym.types import (
    EvaluatorStatus as EvaluatorStatus,
)
from kernelgym.types import (
    Feedback as Feedback,
)
from kernelgym.types import (
    Finding as Finding,
)
from kernelgym.types import (
    Job as Job,
)
from kernelgym.types import (
    Kernel as Kernel,
)
from kernelgym.types import (
    Message as Message,
)
from kernelgym.types import (
    Mismatch as Mismatch,
)
from kernelgym.types import (
    Problem as Problem,
)
from kernelgym.types import (
    Reply as Reply,
)
from kernelgym.types import (
    Score as Score,
)
from kernelgym.types import (
    Severity as Severity,
)
from kernelgym.types import (
    Status as Status,
)
from kernelgym.types import (
    Timing as Timing,
)
from kernelgym.types import (
    Trajectory as Trajectory,
)
from kernelgym.types import (
    Turn as Turn,
)
from kernelgym.types import (
    Verdict as Verdict,
)

ENV_IDS: tuple[str, ...]
__version__: str
