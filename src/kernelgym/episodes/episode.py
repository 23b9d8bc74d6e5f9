"""The turn machine: one episode of one problem, without any IO.

A caller alternates two calls, and decides for itself how a kernel gets its verdict (directly,
in a batch, awaited; `kernelgym.episodes.playing` is the loop that awaits)::

    read = episode.read(action)
    verdict = evaluator.evaluate(problem, read) if isinstance(read, Kernel) else read
    turn = episode.record(action, verdict)

Contract: `read` never raises on any text of a live episode; sync, batched and async drivers that
feed the same texts and verdicts get the same turns.

It does not judge, time, prompt or discount.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kernelgym.answers.parsing import DEFECTS, parse
from kernelgym.answers.python_source import normal_form
from kernelgym.answers.screening import screen
from kernelgym.episodes.stopping import StopRule, ended, stop_rule
from kernelgym.errors import UsageError
from kernelgym.feedback import FEEDBACK_TOKENS, check_budget, check_level, feedback
from kernelgym.languages import language as find_language
from kernelgym.precision import screening_rules
from kernelgym.prompts.observer import Observer
from kernelgym.rewards import RewardPreset, reward_preset, score
from kernelgym.rulesets import Ruleset
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.tokens import TokenCounter, estimate_tokens
from kernelgym.types import (
    Answer,
    Ended,
    Finding,
    Kernel,
    Problem,
    Reply,
    Severity,
    Status,
    Trajectory,
    Turn,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class _Read:
    """Answer that `Episode.read` has read and `Episode.record` has not yet recorded."""

    action: str
    reply: Reply
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class EpisodeConfig:
    """Settings of an episode: its language and rules, how it is scored and when it ends."""

    language: str = "triton"
    """Language of the kernels."""
    ruleset: str | Ruleset = "strict"
    """Ruleset for screening and verdicts, or its name."""
    max_turns: int = 1
    """Largest number of answers, at least 1."""
    reward: str | RewardPreset = "stage2"
    """Reward preset that scores turns, or its name."""
    stop_when: str | StopRule = "correct"
    """Rule that ends an episode early: ``correct``, ``never``, ``speedup:<x>`` or
    ``no_improvement:<k>``; see `kernelgym.episodes.stopping`."""
    feedback_level: str = "standard"
    """Level of detail of the feedback: ``minimal``, ``standard`` or ``profile``."""
    feedback_tokens: int = FEEDBACK_TOKENS
    """Largest number of tokens of one turn's feedback."""
    count: TokenCounter = estimate_tokens
    """Counter of tokens; it takes four characters for one by default."""
    prompt_tokens: int | None = None
    """Largest number of tokens of a prompt, to which earlier attempts are cut; the problem is
    always shown whole. None for no limit. An observer with a limit of its own goes before."""

    def read_by(self, observer: Observer) -> EpisodeConfig:
        """Return these settings with language, ruleset, turns and token counter of an observer."""
        return dataclasses.replace(
            self,
            language=observer.language,
            ruleset=observer.ruleset,
            max_turns=observer.max_turns,
            count=observer.count,
        )


class Episode:
    """One episode: reads answers, records verdicts, knows when it is over.

    Args:
        problem: The problem to be solved.
        config: The settings.

    Raises:
        UsageError: If a setting is unknown or out of range.
    """

    def __init__(self, problem: Problem, config: EpisodeConfig) -> None:
        turns = config.max_turns
        if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
            raise UsageError(f"max_turns must be a whole number, at least 1, got {turns!r}")
        self.problem, self.config = problem, config
        self.language = find_language(config.language).name
        self.ruleset = find_ruleset(config.ruleset)
        self.reward = reward_preset(config.reward)
        self.max_turns = turns
        self.stop_when = stop_rule(config.stop_when)
        self.feedback_level = check_level(config.feedback_level)
        self.feedback_tokens = check_budget(config.feedback_tokens)
        self.count = config.count
        self._turns: list[Turn] = []
        self._ended: Ended = ""
        self._pending: _Read | None = None
        self._known: dict[str, Verdict] = {}

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns recorded so far."""
        return tuple(self._turns)

    @property
    def ended(self) -> Ended:
        """Reason why the episode ended; empty while it goes on."""
        return self._ended

    @property
    def over(self) -> bool:
        """Whether the episode has ended, so that no further turn is accepted."""
        return bool(self._ended)

    @property
    def trajectory(self) -> Trajectory:
        """Problem and turns of the episode so far."""
        return Trajectory(self.problem, self.turns, self._ended, self.max_turns)

    def read(
        self, action: str, *, cut_off: bool = False, kernel: Kernel | None = None
    ) -> Kernel | Verdict:
        """Parse and screen one answer.

        Args:
            action: The model's text.
            cut_off: Whether sampling stopped at a limit; that is a defect of the form, even if a
                kernel can be read. An `Answer` can carry that mark itself.
            kernel: Kernel that was handed over by itself, such as in a file, and that `action`
                only quotes; None to look for it in `action`.

        Returns:
            A kernel to be judged, or the verdict itself if there is nothing to judge: no kernel
            in the text, or one that the ruleset refuses.

        Raises:
            UsageError: If the episode is over.
        """
        if self._ended:
            raise UsageError(
                f"the episode is over ({self._ended!r} after {len(self._turns)} of "
                f"{self.max_turns} turns); start a new one"
            )
        cut_off = cut_off or (isinstance(action, Answer) and action.cut_off)
        action = str(action)
        reply = parse(action, self.language) if kernel is None else Reply(kernel)
        if cut_off:
            reply = dataclasses.replace(reply, defects=(*reply.defects, "cut_off"))
        findings = (
            ()
            if reply.kernel is None
            else screen(reply.kernel, screening_rules(self.problem, self.ruleset))
        )
        self._pending = _Read(action, reply, findings)
        if reply.kernel is None:
            why = "; ".join(DEFECTS[code] for code in reply.defects)
            return Verdict(Status.NO_KERNEL, message=why, ruleset=self.ruleset.label)
        return refusal(self.problem, reply.kernel, self.ruleset) or reply.kernel

    def known_verdict(self, kernel: Kernel) -> Verdict | None:
        """Return the episode's earlier verdict on the same kernel, spacing aside; None without one.

        A driver that uses it spares the judge, and the same kernel cannot get two verdicts.
        """
        return self._known.get(normal_form(kernel.source))

    def remember(self, kernel: Kernel, verdict: Verdict) -> None:
        """Keep a verdict that a driver got by itself, for `known_verdict` to return."""
        self._known.setdefault(normal_form(kernel.source), verdict)

    def record(self, action: str, verdict: Verdict) -> Turn:
        """Record the verdict on the answer that was read last, and return its turn.

        Args:
            action: The text given to `read`.
            verdict: The judge's verdict, or what `read` returned if that was one.

        Raises:
            UsageError: If `action` was not read before, or was recorded already.
        """
        pending = self._pending
        if pending is None or pending.action != action:
            raise UsageError(
                "record() takes the action that read() was given last, once; "
                "call read() with this action first"
            )
        reply = pending.reply
        if reply.kernel is not None and verdict.valid:
            self.remember(reply.kernel, verdict)
        verdict = with_findings(verdict, pending.findings)
        turn = Turn(
            index=len(self._turns),
            action=pending.action,
            reply=reply,
            verdict=verdict,
            feedback=feedback(
                verdict,
                reply,
                level=self.feedback_level,
                budget=self.feedback_tokens,
                count=self.count,
            ),
            score=score(self.reward, reply, verdict, self._turns),
        )
        self._pending = None
        self._turns.append(turn)
        self._ended = ended(self.stop_when, self._turns, self.max_turns)
        return turn

    def cut(self) -> None:
        """End the episode as ``cut``, such as when its context is full.

        Raises:
            UsageError: If it is over.
        """
        if self._ended:
            raise UsageError(f"the episode is over ({self._ended!r}): it cannot be cut")
        self._ended = "cut"


def refusal(problem: Problem, kernel: Kernel, ruleset: Ruleset) -> Verdict | None:
    """Return the `rejected` verdict of a kernel that the ruleset refuses unrun; None if it may run.

    For callers that judge a kernel outside an episode, so that both refuse the same.
    """
    findings = screen(kernel, screening_rules(problem, ruleset))
    hard = [finding.message for finding in findings if finding.severity is Severity.HARD]
    if not hard:
        return None
    return Verdict(
        Status.REJECTED, findings=findings, message="; ".join(hard), ruleset=ruleset.label
    )


def with_findings(verdict: Verdict, findings: tuple[Finding, ...]) -> Verdict:
    """Return `verdict` with the findings of screening in front, none of them twice."""
    merged = tuple(dict.fromkeys(findings + verdict.findings))
    return verdict if merged == verdict.findings else dataclasses.replace(verdict, findings=merged)
