"""The stages of a demonstration: prepare a warm-started model, and play held-out problems.

Contract: plan, seed and the earlier stages decide each stage. `prepare` keeps model and tokenizer
in ``start/`` of a folder and the problems in ``problems/``, and writes ``start/prepared.json``
last. A second call finds that file and returns the same model, so all training runs of one seed
begin with it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Any

from kernelgym import LocalEvaluator, UsageError
from kernelgym.rulesets import Ruleset, ruleset
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.types import Evaluator, Job, Problem
from kernelgym_train.backends.backend import find_backend
from kernelgym_train.config.config import Config
from kernelgym_train.config.sections import ModelConfig
from kernelgym_train.demo.corpus import evenly, first_answers, fits, repairs, some
from kernelgym_train.demo.folders import PRACTICE, write_problems
from kernelgym_train.demo.heldout import HeldOut, evaluate_policy
from kernelgym_train.demo.learning import RULES, dialogue_observer, learning_config
from kernelgym_train.demo.model import build_model, parameter_count
from kernelgym_train.demo.plan import Plan
from kernelgym_train.demo.settings import LOCAL
from kernelgym_train.demo.splits import Splits, draw_splits
from kernelgym_train.demo.tokenizer import is_answerable, train_tokenizer, within_budget
from kernelgym_train.demo.warmstart import FitProgress, fit
from kernelgym_train.launch.assembly import episode_rules
from kernelgym_train.models import load_tokenizer, save_model
from kernelgym_train.run.training import PolicyFor

_NEVER_SHOWN = ("composed", "unseen_operator")


@dataclass(frozen=True)
class Prepared:
    """Prepared start of a demonstration: problems, and a warm-started model."""

    plan: Plan
    seed: int
    folder: Path
    """Folder of the demonstration; the model is in ``start/``."""
    splits: Splits
    about: Mapping[str, Any]
    """Numbers on the warm start: problems, answers, tokens, seconds."""

    @cached_property
    def tables(self) -> dict[str, tuple[Problem, ...]]:
        """Held-out problems by table, those with short right answers, as many as planned.

        Problems with operators that the warm start never showed take more tokens; they are asked
        all the same.
        """
        found = {}
        for name, most in self.plan.held_out.items():
            suits = fits if name in _NEVER_SHOWN else self._has_short_answers
            found[name] = tuple(itertools.islice(filter(suits, getattr(self.splits, name)), most))
        return found

    @cached_property
    def practice(self) -> tuple[Problem, ...]:
        """Problems that the model is trained on with the judge's rewards."""
        return tuple(filter(self._has_short_answers, self.splits.rl))

    def _has_short_answers(self, problem: Problem) -> bool:
        return fits(problem) and is_answerable(self._tokenizer, problem)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(ModelConfig(id=str(self.folder / "start")))


def prepare(
    folder: Path,
    plan: Plan,
    seed: int,
    progress: Callable[[FitProgress], None] | None = None,
) -> Prepared:
    """Draw the problems, write the noisy answers, train the tokenizer and fit the model.

    What the folder holds already is taken as it is.

    Args:
        folder: Folder of the demonstration; ``start/`` and ``problems/`` are made in it.
        plan: Sizes of the demonstration.
        seed: Seed of problems, answers, weights and the order of fitting.
        progress: Function that is called after every batch of the fitting.

    Raises:
        UsageError: If the folder was prepared with another plan or seed.
    """
    done = folder / "start" / "prepared.json"
    about: dict[str, Any] = json.loads(done.read_text()) if done.is_file() else {}
    made_by = {"seed": seed, "plan": plan.start_digest}
    if about and made_by != {name: about.get(name) for name in made_by}:
        raise UsageError(
            f"{str(folder)!r} was prepared with seed {about.get('seed', '(not told)')} and seed "
            f"{seed} was asked for, or by another plan; remove it, or give another name"
        )
    splits = draw_splits(seed, plan.scope)
    prepared = Prepared(plan, seed, folder, splits, about)
    if about:
        _write_problems(prepared)
        return prepared
    first = first_answers(splits.warmstart, seed, evenly(splits.warmstart, plan.answers))
    second = repairs(splits.warmstart, seed, some(splits.warmstart, plan.repairs, seed))
    tokenizer = train_tokenizer((*first, *second), plan.vocabulary)
    examples = within_budget(tokenizer, (*first, *second))
    model = build_model(tokenizer, plan.size, seed=seed)
    fitted = fit(model, tokenizer, examples, plan.fit, seed=seed, progress=progress)
    save_model(model, tokenizer, folder / "start")
    about |= made_by | {
        "warmstart_problems": len(splits.warmstart),
        "practice_problems": len(prepared.practice),
        "withheld": splits.withheld,
        "answers": len(first),
        "repairs": len(second),
        "kept": len(examples),
        "right_share": sum(example.label == "right" for example in first) / len(first),
        "vocabulary": len(tokenizer),
        "parameters": parameter_count(model),
        "fit_tokens": fitted.tokens,
        "fit_loss": fitted.loss,
        "fit_s": fitted.seconds,
    }
    _write_problems(prepared)
    done.write_text(json.dumps(about, indent=2) + "\n")
    return prepared


def holds_only_start(folder: Path, plan: Plan, seed: int) -> bool:
    """Return True if a folder holds what `prepare` makes and nothing else."""
    try:
        names = {path.name for path in folder.iterdir()}
        about = json.loads((folder / "start" / "prepared.json").read_text())
    except (OSError, ValueError):
        return False
    same = (about.get("seed"), about.get("plan")) == (seed, plan.start_digest)
    return same and names == {"start", "problems"}


def _write_problems(prepared: Prepared) -> None:
    folders = {PRACTICE: prepared.practice, **prepared.tables}
    write_problems(prepared.folder / "problems", folders)


def config_of(prepared: Prepared, name: str, overrides: tuple[str, ...] = ()) -> Config:
    """Return the configuration of a training run that begins with the prepared model."""
    return _config(prepared.folder, prepared.plan, prepared.seed, name, overrides)


def check_backend(folder: Path, plan: Plan, seed: int) -> None:
    """Refuse a plan whose backend cannot train the prepared model.

    Raises:
        UsageError: If it lacks a package or does not have the model, or if there is none yet that
            a service could have.
    """
    config = _config(folder, plan, seed, "main")
    backend = find_backend(plan.backend)
    backend.check(config)
    if holds_only_start(folder, plan, seed):
        backend.prepare(config).close()
    elif plan.backend not in LOCAL:
        raise UsageError(
            f"backend {plan.backend!r} needs the warm-started model on a server first; make it by "
            f"--prepare, serve {str(folder / 'start')!r}, then give this command again"
        )


def _config(
    folder: Path, plan: Plan, seed: int, name: str, overrides: tuple[str, ...] = ()
) -> Config:
    local = (f"sampling.batch_size={plan.batch}", *plan.local_settings)
    return learning_config(
        folder / "start",
        folder / name,
        seed,
        (
            *plan.settings,
            *(local if plan.backend in LOCAL else ()),
            f"optimiser.steps={plan.steps}",
            f"sampling.max_new_tokens={plan.max_new_tokens}",
            *overrides,
        ),
        backend=plan.backend,
    )


def open_judge(workers: int = 2, rules: str | Ruleset = RULES) -> LocalEvaluator:
    """Return the judge of a demonstration on a CPU: interpreted kernels, untimed."""
    return LocalEvaluator("cpu", ruleset(rules), workers, timing=False)


def warm_up(judge: LocalEvaluator) -> Thread:
    """Start all workers of a judge in a background thread, by one kernel for each.

    They import what judging needs, which takes seconds, and judge a kernel each.
    """
    problems = SyntheticSuite().problems(level=1, ids=f"1-{judge.workers}")
    jobs = [Job(problem, solve(problem)) for problem in problems]

    def start() -> None:
        with contextlib.suppress(ValueError):  # it was closed meanwhile
            judge.evaluate_many(jobs)

    thread = Thread(target=start, daemon=True)
    thread.start()
    return thread


def evaluate_tables(
    prepared: Prepared, judge: Evaluator, policy: PolicyFor | None = None
) -> dict[str, HeldOut]:
    """Play the held-out problems with a policy, and return scores and episodes by table.

    Args:
        prepared: Prepared start of the demonstration.
        judge: Evaluator of the answers' kernels.
        policy: Policy to evaluate; the warm-started model if None.
    """
    plan, config = prepared.plan, config_of(prepared, "evaluation")
    with contextlib.ExitStack() as stack:
        if policy is None:
            model = find_backend(plan.backend).prepare(config)
            stack.callback(model.close)
            model.load()
            policy = model.policy
        return evaluate_policy(
            policy,
            prepared.tables,
            judge,
            dialogue_observer(config, judge, load_tokenizer(config.model)),
            episode_rules(config),
            samples=plan.samples,
            max_new_tokens=plan.max_new_tokens,
            seed=prepared.seed,
        )
