"""The whole demonstration: prepare, play held-out problems, learn, play them again, report.

Contract: all results are in one folder, which must not exist yet or hold only what
`kernelgym_train.demo.stages.prepare` has made there::

    start/          the warm-started model, its tokenizer, and numbers on the warm start
    problems/       the problems trained on, and each held-out table, as folders of problem files
    main/           the run: metrics, trajectories; main/model has the adapter, or its address
    merged/         the trained model as a plain folder, if the adapter is on this machine
    verdicts.jsonl  the verdict on every kernel
    results.json    every number
    report.html     the same for readers

The seed decides problems, answers, weights and sampling; wall time decides nothing.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from kernelgym.benchmark.numbers.taxonomy import failure_of
from kernelgym.errors import UsageError
from kernelgym.prompts.short import question
from kernelgym.types import Turn
from kernelgym_train.demo.heldout import HeldOut
from kernelgym_train.demo.learning import learn
from kernelgym_train.demo.plan import CPU_PLAN, Plan
from kernelgym_train.demo.report import html_page
from kernelgym_train.demo.results import Demonstration, Specimen, as_data, curves_of
from kernelgym_train.demo.stages import (
    Prepared,
    check_backend,
    config_of,
    evaluate_tables,
    holds_only_start,
    open_judge,
    prepare,
    warm_up,
)
from kernelgym_train.demo.warmstart import FitProgress
from kernelgym_train.models import merge_adapter
from kernelgym_train.rollout.verdict_log import VerdictLog
from kernelgym_train.run.runlog import Watcher
from kernelgym_train.types import Rollout

_SPECIMENS = 2


def demonstrate(
    folder: Path,
    plan: Plan = CPU_PLAN,
    *,
    seed: int = 0,
    workers: int = 2,
    say: Callable[[str], None] = lambda text: None,
    opening: Callable[[], object] = lambda: None,
    fitting: Callable[[FitProgress], None] | None = None,
    watchers: Iterable[Watcher] = (),
) -> Demonstration:
    """Run a demonstration, write its folder, and return its results.

    Args:
        folder: Folder of all results; it is made.
        plan: Sizes of the demonstration.
        seed: Seed of problems, answers, weights and sampling.
        workers: Number of kernels that are judged at the same time.
        say: Function that is given a line before each stage.
        opening: Function that is called once the folder is made, before the model is fitted.
        fitting: Function that is called after every batch of the warm start.
        watchers: Watchers of the steps of the learning.

    Raises:
        UsageError: If the folder exists and was not prepared with that plan and seed, or the
            backend cannot start from the model in it.
    """
    folder = folder.absolute()
    check_backend(folder, plan, seed)
    is_prepared = holds_only_start(folder, plan, seed)
    if not is_prepared:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(
                f"there is something in {str(folder)!r} already; remove it, or give another name"
            ) from None
    opening()
    clock = _Clock()
    with contextlib.ExitStack() as closing, open_judge(workers) as judge:
        ready = warm_up(judge)  # while problems are drawn, which takes one core
        say(
            f"drawing the problems again for the model in {folder / 'start'}"
            if is_prepared
            else f"drawing problems and fitting a model on noisy answers (seed {seed})"
        )
        prepared = prepare(folder, plan, seed, fitting)
        ready.join()
        clock.lap("warm start")
        known = VerdictLog(judge, folder / "verdicts.jsonl")
        say("playing the held-out problems before training")
        before = evaluate_tables(prepared, known)
        clock.lap("evaluation before")
        say(f"learning from the judge's rewards, {plan.steps} steps")
        model = learn(config_of(prepared, "main"), prepared.practice, known, watchers=watchers)
        closing.callback(model.close)
        clock.lap("learning")
        say("playing the held-out problems after training")
        after = evaluate_tables(prepared, known, model.policy)
        clock.lap("evaluation after")
        judged = known.status.misses
    if (folder / "main" / "model" / "adapter_config.json").is_file():
        merge_adapter(folder / "main" / "model", folder / "merged")
    shown = Demonstration(
        title="A small model learns to write Triton kernels from verdicts",
        seed=seed,
        facts=facts_of(prepared) | {"kernels judged": f"{judged:,}"},
        before={name: found.scores for name, found in before.items()},
        after={name: found.scores for name, found in after.items()},
        curves=curves_of(folder / "main"),
        seconds=clock.launch_times,
        notes=_notes(prepared),
        specimens=specimens_of(before, after),
        extra={"about": dict(prepared.about), "judged": judged},
    )
    (folder / "results.json").write_text(json.dumps(as_data(shown), indent=2) + "\n")
    (folder / "report.html").write_text(html_page(shown), encoding="utf-8")
    return shown


def facts_of(prepared: Prepared) -> dict[str, str]:
    """Return facts of a demonstration as short texts: model, warm start, training, judge, seed."""
    about, plan = prepared.about, prepared.plan
    config = config_of(prepared, "main")
    sampling, turns = config.sampling, config.env.max_turns
    return {
        "model": f"Qwen3 architecture from scratch, {about['parameters']:,} parameters, "
        f"{about['vocabulary']:,} phrase-level tokens",
        "warm start": f"{about['kept']:,} answers to {about['warmstart_problems']:,} problems, "
        f"{100 * about['right_share']:.0f} % of first answers right",
        "learning": f"{plan.steps} steps of {sampling.problems_per_step} x {sampling.group_size} "
        f"episodes of at most {turns} turns, on {len(prepared.practice)} other problems; "
        f"GRPO ({config.credit.estimator}) with a LoRA adapter of rank {config.model.lora_rank}, "
        f"by backend {config.run.backend}",
        "judge": f"ruleset {config.env.ruleset}, Triton through its interpreter, untimed",
        "seed": str(prepared.seed),
    }


def specimens_of(
    before: Mapping[str, HeldOut], after: Mapping[str, HeldOut]
) -> tuple[Specimen, ...]:
    """Return held-out problems with their first sampled answers before and after training.

    Those that were wrong before and are right after come first: they show what was learned.
    """
    found: list[Specimen] = []
    others: list[Specimen] = []
    for name, table in before.items():
        later = {rollout.key: rollout for rollout in after[name].sampled}
        for rollout in table.sampled:
            if rollout.key.trajectory or rollout.key not in later:
                continue
            one, two = _first(rollout), _first(later[rollout.key])
            if one is not None and two is not None:
                problem = rollout.trajectory.problem
                learned = two.verdict.correct > one.verdict.correct
                (found if learned else others).append(
                    Specimen(
                        problem.id,
                        question(problem)[0].content,
                        one.action,
                        failure_of(one),
                        two.action,
                        failure_of(two),
                    )
                )
    return tuple((found or others[:1])[:_SPECIMENS])


def _first(rollout: Rollout) -> Turn | None:
    turns = rollout.trajectory.turns
    return turns[0] if turns else None


def _notes(prepared: Prepared) -> Sequence[str]:
    withheld = prepared.about["withheld"]
    return (
        "Tokens are phrases: most lines are one token, and a line that computes something is "
        "several. The tokenizer was trained on the warm start alone.",
        "Held out are chains of operators that were never asked for before (compositions), and "
        "single operators on kinds of shape that were never asked for (shapes).",
        f"The table unseen_operator asks for {withheld}, which occurs nowhere else: it is there to "
        "show what is not learned.",
        "The right form of silu never occurs in the warm start; x times sigmoid(x) makes it.",
    )


class _Clock:
    """Clock that adds up the wall seconds of each stage of a demonstration."""

    def __init__(self) -> None:
        self.launch_times: dict[str, float] = {}
        self._since = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.launch_times[name], self._since = now - self._since, now
