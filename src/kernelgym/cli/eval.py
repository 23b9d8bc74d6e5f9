"""``kernelgym eval``: a policy writes kernels, and a judge judges them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgym.cli import judging
from kernelgym.cli.console import print_text
from kernelgym.cli.options import JudgingOptions, MemoryOption
from kernelgym.cli.progress import progress_bar
from kernelgym.errors import UsageError

if TYPE_CHECKING:
    from kernelgym.benchmark.run.driver import Done
    from kernelgym.benchmark.run.plan import Plan
    from kernelgym.benchmark.run.policies import EvalPolicy, PolicyOptions
    from kernelgym.benchmark.run.task import Task
    from kernelgym.types import Problem

__all__ = ["Eval"]


@dataclass(frozen=True, kw_only=True)
class Eval(MemoryOption, JudgingOptions):
    """Have a policy write kernels, judge them, and keep all of it.

    The same command again goes on with the run: no answer that is on disk is asked for again. Exit
    code 0 once the run is through, whatever the verdicts are; 1 if it stopped before.
    """

    policy: str = ""
    """What answers: scripted."""
    shares: str = ""
    """Of the scripted policy: shares of right, wrong and cheating answers, such as 0.5,0.3,0.2."""
    suite: str = "KernelBench"
    """Suite of the problems, or the path of a folder of them."""
    level: int | None = None
    """Level of the problems; all if not given."""
    problems: str = ""
    """Ids, numbers or ranges, such as 1-20,33; all of the level if not given."""
    split: str = ""
    """Split of the problems, such as test."""
    limit: int | None = None
    """Most problems, the first of the choice."""
    exclude_degenerate: bool = False
    """Leave out problems that a worthless kernel passes."""
    samples: int = 1
    """Episodes of each problem."""
    turns: int = 1
    """Most turns of an episode."""
    seed: int = 0
    """Seed of the sampling, for policies that can be seeded."""
    prompt: str = "full"
    """Kind of the prompt: full or short."""
    examples: str = "one_shot"
    """Worked examples in the prompt: zero_shot, one_shot, few_shot or a number."""
    hardware: str = ""
    """What the prompt tells of the device, as JSON: {"name": "NVIDIA H200", ...}."""
    retrieval: str = ""
    """Index of examples by similarity, such as synthetic."""
    prompt_tokens: int | None = None
    """Most tokens of a prompt."""
    context: str = "recent"
    """What is shown of earlier turns: last, recent, best, kernels, window or whole."""
    context_tokens: int | None = None
    """Most tokens for that."""
    reward: str = "stage2"
    """Reward preset that scores the turns."""
    stop_when: str = "correct"
    """When an episode stops early: correct, never, speedup:<x> or no_improvement:<k>."""
    feedback_level: str = "standard"
    """How much feedback tells: minimal, standard or profile."""
    feedback_tokens: int | None = None
    """Most tokens of a turn's feedback."""
    precision: str = ""
    """own (the problem's), fp32, fp16 or bf16, in place of the ruleset's."""
    no_timing: bool = False
    """Judge correctness only."""
    workers: int = 1
    """Kernels judged at the same time."""
    verdict_cache: str = ""
    """Folder in which verdicts are kept: what it holds already is not judged again."""
    concurrency: int = 8
    """Most answers that are asked for at the same time."""
    out: str = ""
    """The run's folder; runs/NAME if not given."""
    name: str = ""
    """The run's name; made of the model's and the suite's if not given."""
    generate_only: bool = False
    """Ask for answers as far as verdicts are there, and judge nothing."""
    judge_only: bool = False
    """Judge what is there, and ask for nothing. The plan is the folder's."""

    def run(self) -> int:
        """Play the run; returns the exit code."""
        if self.generate_only and self.judge_only:
            raise UsageError("--generate-only and --judge-only leave nothing to do; give one")
        for option in ("concurrency", "workers"):
            if (value := getattr(self, option)) < 1:
                raise UsageError(f"--{option} must be at least 1, got {value}")
        plan, problems, folder, policy = self._plan()
        evaluator = None
        if not self.generate_only:
            judging.check_tools(plan.language, plan.device)
            evaluator = judging.make_evaluator(
                plan.device, plan.rules, self.workers, plan.timing, self.memory
            )
        from kernelgym.benchmark.run.evaluate import run_plan

        try:
            if evaluator is not None:
                evaluator = judging.with_cache(evaluator, self.verdict_cache)
            with progress_bar("episodes", len(problems) * plan.samples) as advance:
                done = run_plan(
                    *(plan, problems, folder, policy, evaluator),
                    judges=evaluator is not None,
                    workers=self.workers,
                    concurrency=self.concurrency,
                    on_episode=advance,
                )
        finally:
            if evaluator is not None:
                evaluator.close()
        _tell(done, folder)
        return 1 if done.stopped else 0

    def _plan(self) -> tuple[Plan, tuple[Problem, ...], Path, EvalPolicy | None]:
        """Return what is done: from the options, or the folder's with --judge-only."""
        from kernelgym.benchmark.run.evaluate import default_folder
        from kernelgym.benchmark.run.plan import read_plan
        from kernelgym.benchmark.run.policies import make_policy
        from kernelgym.benchmark.run.task import problems_of, resolve

        if self.judge_only:
            if not self.out:
                raise UsageError("--judge-only needs --out, the folder of the run")
            if self.policy:
                raise UsageError(
                    "--judge-only asks for no answer, so --policy has no use; leave it out"
                )
            plan = read_plan(Path(self.out))
            return plan, problems_of(plan), Path(self.out), None
        if not self.policy:
            raise UsageError(
                "`kernelgym eval` needs --policy, as in `kernelgym eval --policy scripted --suite "
                "Synthetic --level 1 --limit 4 --out runs/first`"
            )
        policy = make_policy(self.policy, self._options())
        plan, problems = resolve(self._task(), policy.settings, self.name)
        return plan, problems, Path(self.out) if self.out else default_folder(plan.name), policy

    def _options(self) -> PolicyOptions:
        from kernelgym.benchmark.run.policies import PolicyOptions

        return PolicyOptions(
            shares=_shares(self.shares), language=self.language, device=self.device
        )

    def _task(self) -> Task:
        from kernelgym.benchmark.run.task import Task

        hardware: Any = None
        if self.hardware:
            try:
                hardware = json.loads(self.hardware)
            except ValueError as error:
                raise UsageError(f"--hardware takes JSON, got {self.hardware!r}: {error}") from None
        return Task(
            suite=self.suite,
            level=self.level,
            problems=self.problems or None,
            split=self.split or None,
            limit=self.limit,
            exclude_degenerate=self.exclude_degenerate,
            sizes=self.sizes,
            samples=self.samples,
            turns=self.turns,
            seed=self.seed,
            language=self.language,
            ruleset=self.ruleset,
            precision=self.precision,
            device=self.device,
            timing=not self.no_timing,
            prompt=self.prompt,
            examples=int(self.examples) if self.examples.isdecimal() else self.examples,
            hardware=hardware,
            retrieval=self.retrieval or None,
            prompt_tokens=self.prompt_tokens,
            context=self.context,
            context_tokens=self.context_tokens,
            reward=self.reward,
            stop_when=self.stop_when,
            feedback_level=self.feedback_level,
            feedback_tokens=self.feedback_tokens,
        )


def _shares(given: str) -> tuple[float, float, float] | None:
    if not given:
        return None
    try:
        right, wrong, cheating = map(float, given.split(","))
    except ValueError:
        raise UsageError(
            f"--shares takes three numbers, of right, wrong and cheating answers, such as "
            f"0.5,0.3,0.2; got {given!r}"
        ) from None
    return right, wrong, cheating


def _tell(done: Done, folder: Path) -> None:
    """Print what became of a run."""
    counts = ", ".join(f"{count} {status}" for status, count in sorted(done.statuses.items()))
    more = f" ({done.answers_there} were there)" if done.answers_there else ""
    print_text(
        f"{done.ended} of {done.episodes} episodes ended; {done.answers} answers{more}, "
        f"{done.judged} kernels judged{f': {counts}' if counts else ''}; {folder}"
    )
    if done.failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(done.failures.items()))
        print_text(f"not had: {kinds}; see failures.jsonl", "yellow")
    if done.cut:
        print_text(f"{done.cut} episodes were cut; the same command goes on with them", "yellow")
    if done.waiting:
        print_text(f"{done.waiting} episodes wait for an answer or a verdict", "yellow")
    if done.usd:
        print_text(f"spent {done.usd:.4f} USD")
    if done.stopped:
        print_text(f"stopped: {done.stopped}", "red")
