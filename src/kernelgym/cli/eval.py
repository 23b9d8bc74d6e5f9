"""``kernelgym eval``: let a policy write kernels, and judge them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgym.benchmark.run.options import EvalTask, PolicyOptions
from kernelgym.cli import judging
from kernelgym.cli.console import print_text
from kernelgym.cli.options import MemoryOption
from kernelgym.cli.progress import progress_bar
from kernelgym.errors import UsageError
from kernelgym.judging_memory import memory_budget, parse_bytes
from kernelgym.pretrained import check_models
from kernelgym.records.run_lock import LOG
from kernelgym.records.run_logs import run_logs

if TYPE_CHECKING:
    from kernelgym.benchmark.run.driver import EvalSummary
    from kernelgym.benchmark.run.plan import EvalPlan
    from kernelgym.benchmark.run.policies import EvalPolicy
    from kernelgym.types import Problem

_MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class EvalCommand(MemoryOption, EvalTask, PolicyOptions):
    """Let a policy write kernels, judge them, and keep answers and verdicts.

    The same command again resumes the run: no answer that is on disk is requested again. Exit code
    0 if every episode ended, whatever the verdicts are; 1 if the run stopped before, or episodes
    were cut because answers or verdicts failed.
    """

    # These options have wider types in Python; a command line can only hold texts.
    problems: str | None = None
    hardware: str | None = None
    retrieval: str | None = None
    context: str = "recent"
    extra_body: str | None = None
    policy: str = ""
    """Policy that answers: openai, hf:MODEL or hf:MODEL+ADAPTER, tinker:PATH, replay:RUN, scripted,
    folder:FOLDER of kernels, or a kind that another package adds."""
    price: str = ""
    """Price of the model: IN,OUT or IN,OUT,CACHED in USD per million tokens, or a YAML file of
    prices with a date."""
    max_usd: float | None = None
    """US dollars that the run must not exceed; needs --price."""
    tokenizer: str = ""
    """Tokenizer that counts prompts for --max-usd; each UTF-8 byte counts for one if not given."""
    device: str = "cpu"
    """Device on which kernels are judged: cpu, cuda:N, or all for every GPU of this machine."""
    evaluator: str = ""
    """Address of a verdict service that judges, such as http://127.0.0.1:8765, in place of this
    machine; its key comes from the environment variable KERNELGYM_API_KEY. Or ray, for
    this machine's Ray cluster."""
    workers: int = 1
    """Number of kernels judged at the same time on each device."""
    verdict_cache: str = ""
    """Folder in which verdicts are kept; a kernel with a verdict in it is not judged again."""
    concurrency: int = 8
    """Largest number of answers that are requested at the same time."""
    out: str = ""
    """Folder of the run; runs/NAME if not given."""
    name: str = ""
    """Name of the run; made of the names of model and suite if not given."""
    tensorboard: str = ""
    """Folder of TensorBoard in which the run's eval/ numbers are written once it has ended."""
    step: int | None = None
    """Step of these numbers, such as the steps after which a checkpoint was saved; 0 if not
    given."""
    generate_only: bool = False
    """Request answers only, up to the turns that need a verdict; judge nothing."""
    judge_only: bool = False
    """Judge the answers on disk only, with the plan in --out; request no answers."""
    dry_run: bool = False
    """Print a forecast of requests, tokens, costs and time, and what is missing; open no
    connection."""
    retime: str = ""
    """Path of a run whose distrusted or missing times (finding host_busy) are measured again, by
    the run's rules and on its device; no new run begins."""
    ping: bool = False
    """Request one token from the endpoint, and print the result; no run begins."""

    def run(self) -> int:
        """Play the run; return the exit code."""
        if self.retime:
            return _retime(self.retime, self.workers, self.memory)
        if self.generate_only and self.judge_only:
            raise UsageError(
                "--generate-only and --judge-only exclude each other; give one of them"
            )
        if self.step is not None and not self.tensorboard:
            raise UsageError(
                "--step is the step of the points that --tensorboard DIR writes; "
                "give that folder too"
            )
        if self.dry_run:
            # Read when the hub's client is imported: a suite from there is listed from its copy.
            os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
        plan, problems, folder, policy = self._plan()
        if self.dry_run:
            return self._forecast(plan, problems, folder, policy)
        if self.ping:
            return _ping(policy)
        from kernelgym.benchmark.run.evaluate import run_plan

        with contextlib.ExitStack() as stack:
            stack.enter_context(run_logs(folder))
            evaluator = None
            if not self.generate_only:
                if not self.evaluator:  # a service has tools and models of its own
                    judging.check_tools(plan.language, plan.device)
                    for problem in problems:
                        check_models(problem)
                evaluator = stack.enter_context(
                    judging.open_evaluator(
                        judging.ALL_DEVICES if self._on_all else plan.device,
                        plan.rules,
                        self.workers,
                        plan.timing,
                        self.memory,
                        self.verdict_cache,
                        self.evaluator,
                    )
                )
            episodes = len(problems) * plan.samples
            with progress_bar("episodes", episodes, _ended_before(folder)) as advance:
                try:
                    done = run_plan(
                        plan,
                        problems,
                        folder,
                        policy,
                        evaluator,
                        concurrency=self.concurrency,
                        on_episode=advance,
                    )
                except KeyboardInterrupt:
                    told = f"interrupted; the same command continues {folder}"
                    raise KeyboardInterrupt(told) from None
            why = f"; stopped: {done.stopped}" if done.stopped else ""
            LOG.info("%d of %d episodes ended%s", done.ended, done.episodes, why)
        _tell(done, folder)
        if self.tensorboard:
            self._write_curves(done, folder)
        return 1 if done.stopped or done.cut else 0

    def _write_curves(self, done: EvalSummary, folder: Path) -> None:
        """Write the run's numbers for TensorBoard, if the run has ended."""
        from kernelgym.benchmark.tensorboard import run_metrics, write_scalars

        if done.ended < done.episodes:
            print_text(
                f"nothing is written to {self.tensorboard}: {done.episodes - done.ended} episodes "
                "have not ended",
                "yellow",
            )
            return
        write_scalars(Path(self.tensorboard), self.step or 0, run_metrics(folder))

    @property
    def _on_all(self) -> bool:
        return self.device == judging.ALL_DEVICES

    def _plan(self) -> tuple[EvalPlan, tuple[Problem, ...], Path, EvalPolicy | None]:
        """Return plan, problems, folder and policy, from the options or from the run's folder."""
        from kernelgym.benchmark.run.evaluate import default_folder
        from kernelgym.benchmark.run.plan import read_plan
        from kernelgym.benchmark.run.plan_from_options import problems_of, resolve
        from kernelgym.benchmark.run.policies import make_policy
        from kernelgym.benchmark.run.spending import priced

        if self.judge_only:
            if not self.out:
                raise UsageError("--judge-only needs --out, the folder of the run")
            if self.policy:
                raise UsageError(
                    "--judge-only requests no answers, so --policy has no use; leave it out"
                )
            plan = read_plan(Path(self.out))
            return plan, problems_of(plan), Path(self.out), None
        if not self.policy:
            raise UsageError(
                "`kernelgym eval` needs --policy, as in `kernelgym eval --policy scripted --suite "
                "Synthetic --level 1 --limit 4 --out runs/first`"
            )
        policy = priced(
            make_policy(self.policy, self),
            self.price,
            self.max_usd,
            self.tokenizer,
        )
        # Which of several GPUs of one kind judges a kernel decides nothing: a plan names the first.
        task = dataclasses.replace(self, device="cuda:0") if self._on_all else self
        plan, problems = resolve(task, policy.settings, self.name)
        return plan, problems, Path(self.out) if self.out else default_folder(plan.name), policy

    def _forecast(
        self,
        plan: EvalPlan,
        problems: tuple[Problem, ...],
        folder: Path,
        policy: EvalPolicy | None,
    ) -> int:
        """Print the forecast; return 1 if something is missing, else 0."""
        from kernelgym.benchmark.run.forecast import forecast
        from kernelgym.benchmark.run.spending import PricedPolicy
        from kernelgym.devices import find_device
        from kernelgym.suites.known_memory import check_fits

        priced = policy if isinstance(policy, PricedPolicy) else None
        found = forecast(
            plan,
            problems,
            folder,
            plan.observer(),
            price=None if priced is None else priced.price,
            max_tokens=plan.policy.get("max_tokens"),
        )
        print_text(f"{len(problems)} problems x {plan.samples} samples x {plan.turns} turns")
        for line in found.lines():
            print_text(line)
        missing = [policy.missing] if policy is not None else []
        if not self.generate_only:
            try:
                find_device(plan.device)
                judging.check_tools(plan.language, plan.device)
                budget = memory_budget(parse_bytes(self.memory), plan.device)
                for problem in problems:
                    if not self.evaluator:
                        check_models(problem)
                    check_fits(problem, budget, plan.device)
            except UsageError as error:
                missing.append(str(error))
            missing += _unprepared(plan, problems)
        for text in filter(None, missing):
            print_text(f"missing: {text}", "red")
        return 1 if any(missing) else 0


def _retime(path: str, workers: int, memory: str) -> int:
    """Judge a run's kernels with distrusted times again; return the exit code."""
    from kernelgym.benchmark.recorded_runs import read_run
    from kernelgym.benchmark.winners import distrusted, retime
    from kernelgym.rulesets import recorded_ruleset

    run = read_run(path)
    chosen = distrusted(run)
    if not chosen:
        print_text(f"no time of {run.name} is distrusted")
        return 0
    record = chosen[0][0].record
    rules = recorded_ruleset(record.ruleset)
    with (
        judging.open_evaluator(record.device, rules, workers, True, memory) as evaluator,
        progress_bar("kernels", len(chosen)) as advance,
    ):
        count = retime(run, evaluator, on_verdict=advance)
    left = len(distrusted(read_run(path)))
    print_text(f"{count} kernels of {run.name} judged again; {left} times are still distrusted")
    return 1 if left else 0


def _unprepared(plan: EvalPlan, problems: tuple[Problem, ...]) -> Iterator[str]:
    """Print how many compiled baselines are prepared; yield a sentence if some are missing."""
    wanted = plan.rules.timing.baseline
    if wanted == "eager" or not plan.timing:
        return
    from kernelgym.errors import JudgeError
    from kernelgym.judge.measuring.process import prepared_baselines

    try:
        there = prepared_baselines(problems, plan.rules, plan.device)
    except JudgeError as error:
        yield f"which baselines are prepared is not known: {error}"
        return
    print_text(f"baseline {wanted!r}: prepared for {len(there)} of {len(problems)} problems")
    if lacking := [problem.id for problem in problems if problem.id not in there]:
        told = " ".join(lacking[:_MOST_NAMED]) + (" ..." if len(lacking) > _MOST_NAMED else "")
        precise = f" --precision {plan.precision}" if plan.precision else ""
        yield (
            f"{len(lacking)} problems have no compiled baseline, and their kernels would be left "
            f"untimed; `kernelgym baseline {told} --device {plan.device} --ruleset "
            f"{plan.rules.name}{precise}` prepares them"
        )


def _ping(policy: EvalPolicy | None) -> int:
    """Request one token, print the result, and return the exit code."""
    import asyncio

    from kernelgym.benchmark.run.openai_policy import OpenAIPolicy
    from kernelgym.benchmark.run.policies import ProviderFailure
    from kernelgym.benchmark.run.spending import PricedPolicy

    if isinstance(policy, PricedPolicy):
        policy = policy.inner
    if not isinstance(policy, OpenAIPolicy):
        raise UsageError("--ping requests a token from an endpoint, so it needs --policy openai")
    asked = policy

    async def ask() -> Any:
        try:
            await asked.check()
            return await asked.ping()
        finally:
            await asked.close()

    try:
        found = asyncio.run(ask())
    except ProviderFailure as failure:
        print_text(f"no answer: {failure}", "red")
        return 1
    usage = found.usage
    tokens = "" if usage is None else f", {usage.prompt} + {usage.completion} tokens"
    print_text(f"{found.model} answers at {asked.endpoint} ({found.finish_reason}{tokens})")
    return 0


def _ended_before(folder: Path) -> int:
    """Return the number of episodes that earlier commands have ended in a run's folder."""
    from kernelgym.benchmark.run_states import RunReader, kind_of

    return 0 if kind_of(folder) is None else RunReader(folder).read().step


def _tell(done: EvalSummary, folder: Path) -> None:
    """Print the counts of an eval run."""
    counts = ", ".join(f"{count} {status}" for status, count in sorted(done.statuses.items()))
    more = f" ({done.answers_there} were on disk)" if done.answers_there else ""
    print_text(
        f"{done.ended} of {done.episodes} episodes ended; {done.answers} answers{more}, "
        f"{done.judged} kernels judged{f'; verdicts in all: {counts}' if counts else ''}; {folder}"
    )
    if done.failures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(done.failures.items()))
        print_text(f"answers that failed: {kinds}; see failures.jsonl", "yellow")
    if done.cut:
        print_text(f"{done.cut} episodes were cut; the same command continues them", "yellow")
    if done.waiting:
        print_text(
            f"{done.waiting} episodes still need an answer or a verdict that this command does not "
            "request",
            "yellow",
        )
    if done.usd:
        print_text(f"spent {done.usd:.4f} USD")
    if done.stopped:
        print_text(f"stopped: {done.stopped}", "red")
