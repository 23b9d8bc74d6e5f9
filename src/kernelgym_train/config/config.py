"""The configuration of a training run: what can be set, and what fits together.

Contract: `load_config` reads a YAML file, then ``key.path=value`` overrides, then checks it all
once; what it returns is complete and can be dumped (`dump_config`) and loaded again. `check_config`
looks at names and numbers only: whether the model, the data and the device are there is the dry
run's business. Faults are `UsageError`, with what to do.

Flat names of other systems (`kernelgym_train.config.flat_names`) are read as ours. Sections are in
`kernelgym_train.config.sections`; the docstring under each field is its help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from kernelgym.errors import UsageError
from kernelgym.rewards import RewardSchedule
from kernelgym.rulesets import Ruleset, ruleset
from kernelgym_train.config.check import check_config
from kernelgym_train.config.flat_names import check_mode, check_retrieves, read_flat
from kernelgym_train.config.sections import (
    CreditConfig,
    EnvConfig,
    EvaluationConfig,
    JudgeConfig,
    LoggingConfig,
    ModelConfig,
    OptimiserConfig,
    RetrievalConfig,
    RewardConfig,
    RunConfig,
    SamplingConfig,
    TinkerConfig,
)
from kernelgym_train.config.settings import (
    Settings,
    keys_that_differ,
    read_settings,
    read_yaml,
)
from kernelgym_train.credit.credit import CreditRule
from kernelgym_train.metrics.guards import GuardRules
from kernelgym_train.rollout.sampling import Curriculum


class Config(Settings):
    """All settings of a training run."""

    run: RunConfig = RunConfig()
    model: ModelConfig = ModelConfig()
    env: EnvConfig = EnvConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    reward: RewardConfig = RewardConfig()
    sampling: SamplingConfig = SamplingConfig()
    curriculum: Curriculum = Curriculum()
    credit: CreditConfig = CreditConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    tinker: TinkerConfig = TinkerConfig()
    judge: JudgeConfig = JudgeConfig()
    logging: LoggingConfig = LoggingConfig()
    guards: GuardRules = GuardRules()
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def samples_per_step(self) -> int:
        """Largest number of training samples of a step: one for each turn of each trajectory."""
        per_group = self.sampling.group_size * self.env.max_turns
        return self.sampling.problems_per_step * per_group

    @property
    def schedule(self) -> RewardSchedule:
        """Reward preset by step, with the run's own weights."""
        return self.reward.schedule

    @property
    def rules(self) -> Ruleset:
        """Ruleset by which kernels are judged."""
        rules, stops = ruleset(self.env.ruleset), self.judge.stop_at_first_failure
        if stops is None:
            stops = not any(preset.weights.trials for _, preset in self.schedule.entries)
        return replace(rules, stop_at_first_failure=rules.stop_at_first_failure or stops)

    @property
    def credit_rule(self) -> CreditRule:
        """Rule by which returns become advantages and weights."""
        constant = self.credit.constant
        return CreditRule(
            self.credit.estimator,
            self.credit.normaliser,
            self.sampling.max_new_tokens if constant is None else constant,
            self.reward.gamma,
            self.reward.returns,
        )


FREE_ON_RESUME = (
    *("run.folder", "run.keep_checkpoints", "optimiser.steps"),
    *("judge.url", "judge.workers", "judge.standby", "sampling.at_once", "retrieval.model"),
    *("tinker.base_url", "tinker.answer_timeout_s", "tinker.step_timeout_s", "tinker.keep_days"),
    *("tinker.most_usd", "tinker.most_tokens"),
)
"""Names of settings that may change when a run is resumed, beside the sections logging, guards and
evaluation: they affect nothing that was done before."""


def load_config(
    path: str | Path | None = None, overrides: Sequence[str] = (), *, processes: int = 1
) -> Config:
    """Return a configuration that has been checked.

    Args:
        path: A YAML file, or the name of one of `ready_configs`; defaults only if None.
        overrides: Texts such as ``optimiser.steps=200``, which go before the file.
        processes: Processes that train together.

    Raises:
        UsageError: If the file, a key or a value cannot be used.
    """
    data = {} if path is None else read_yaml(_found(path))
    flat = read_flat(data, overrides)
    config = read_settings(Config, flat.data, flat.overrides)
    check_mode(flat.mode, config.env.max_turns)
    check_retrieves(flat.retrieves, config.retrieval.index)
    check_config(config, processes)
    return config


def ready_configs() -> dict[str, Path]:
    """Return the configurations that come with the package, by name; to be run, or copied."""
    folder = Path(__file__).parent / "ready"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _found(path: str | Path) -> Path:
    ready = ready_configs()
    if Path(path).exists():
        return Path(path)
    if str(path) in ready:
        return ready[str(path)]
    raise UsageError(
        f"cannot read the configuration {path}: there is no such file; give one, or the name of "
        f"one that comes with kernelgym: {', '.join(ready)}"
    )


def dump_config(config: Config) -> str:
    """Return a configuration as YAML, every default spelt out; `load_config` reads it back."""
    return str(yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True))


def check_resume(kept: Mapping[str, Any], config: Config) -> None:
    """Refuse to resume a run with settings that would have made another run.

    Args:
        kept: The run's configuration, as plain data.
        config: The one to go on with.

    Raises:
        UsageError: If they differ in more than may differ; names the keys.
    """
    differing = [
        key
        for key in keys_that_differ(kept, config.model_dump())
        if key not in FREE_ON_RESUME
        and key.partition(".")[0] not in ("logging", "guards", "evaluation")
    ]
    if differing:
        raise UsageError(
            f"the run to be resumed was made with another {', '.join(differing)}; leave "
            f"{'it' if len(differing) == 1 else 'them'} as in its config.yaml, or start a new run"
        )
