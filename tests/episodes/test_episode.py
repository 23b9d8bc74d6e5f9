from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.episodes.stopping import StopRule, stop_rule
from kernelgym.errors import UnknownName, UsageError
from kernelgym.rewards import REWARDS
from kernelgym.testing import SAMPLE_BROKEN, SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import Answer, Kernel, Reply, Severity, Status, Verdict
from support.strategies import texts, verdicts

GOOD = reply(SAMPLE_KERNELS["triton"])
FAILURES = (
    verdict("compile_error"),
    verdict("runtime_error"),
    verdict("timeout"),
    verdict("wrong"),
    verdict("wrong", trials_passed=3),
)


def episode(**options: object) -> Episode:
    defaults: dict[str, object] = {"language": "triton", "max_turns": 4}
    return Episode(SAMPLE_PROBLEM, EpisodeConfig(**(defaults | options)))  # type: ignore[arg-type]


def variant(number: int) -> str:
    """An answer that differs from every other number's."""
    source = SAMPLE_KERNELS["triton"].source + f"\n# variant {number}\n"
    return reply(Kernel(source, "triton"))


def play(found: list[Verdict], **options: object) -> Episode:
    """Play until the episode is over or the verdicts are used up."""
    game = episode(**options)
    for number, each in enumerate(found):
        if game.over:
            break
        read = game.read(variant(number))
        assert isinstance(read, Kernel)
        game.record(variant(number), each)
    return game


@given(st.lists(st.tuples(texts, verdicts()), max_size=6), st.sampled_from(sorted(REWARDS)))
def test_no_text_makes_an_episode_raise(steps, reward) -> None:
    game = episode(reward=reward, stop_when="never")
    for text, found in steps:
        if game.over:
            break
        read = game.read(text)
        assert isinstance(read, Kernel | Verdict)
        turn = game.record(text, found if isinstance(read, Kernel) else read)
        assert turn.action == text
        assert game.turns[-1] is turn
    assert [turn.index for turn in game.turns] == list(range(len(game.turns)))


def test_a_text_without_a_kernel_is_a_verdict() -> None:
    game = episode()
    read = game.read("I would rather not.")
    assert isinstance(read, Verdict)
    assert read.status is Status.NO_KERNEL
    assert "no kernel was found" in read.message
    turn = game.record("I would rather not.", read)
    assert turn.feedback.category == "format"
    assert turn.score.total < 0


def test_a_hard_finding_is_a_verdict_and_a_soft_one_is_kept() -> None:
    source = SAMPLE_KERNELS["triton"].source
    forbidden = reply(Kernel("import ctypes\n" + source, "triton"))
    read = episode().read(forbidden)
    assert isinstance(read, Verdict)
    assert read.status is Status.REJECTED
    assert "ctypes" in read.message
    assert Severity.HARD in {finding.severity for finding in read.findings}
    assert isinstance(episode(ruleset="kernelbench").read(forbidden), Kernel)

    half = reply(Kernel(source.replace("return y", "return y.half()"), "triton"))
    game = episode()
    assert isinstance(game.read(half), Kernel)
    turn = game.record(half, verdict("wrong"))
    assert [finding.code for finding in turn.verdict.findings] == ["precision_downgrade"]


def test_a_rejected_verdicts_findings_are_not_doubled() -> None:
    text = reply(Kernel("import ctypes\n" + SAMPLE_KERNELS["triton"].source, "triton"))
    game = episode()
    read = game.read(text)
    assert isinstance(read, Verdict)
    assert game.record(text, read).verdict == read


def test_calls_out_of_order_are_refused() -> None:
    game = episode(max_turns=1)
    with pytest.raises(UsageError, match="read"):
        game.record(GOOD, verdict("wrong"))
    game.read(GOOD)
    with pytest.raises(UsageError, match="read"):
        game.record("another text", verdict("wrong"))
    game.record(GOOD, verdict("wrong"))
    assert game.over
    for call in (lambda: game.read(GOOD), lambda: game.record(GOOD, verdict("wrong"))):
        with pytest.raises(UsageError):
            call()


def test_the_same_kernel_has_a_known_verdict_whatever_its_spacing() -> None:
    game = episode(stop_when="never")
    first = game.read(GOOD)
    assert isinstance(first, Kernel)
    assert game.known_verdict(first) is None
    judged = verdict("correct", speedup=1.5)
    game.record(GOOD, judged)
    spaced = Kernel(first.source.replace("\n", "  \n\n"), "triton")
    assert game.known_verdict(spaced) == judged
    assert game.known_verdict(SAMPLE_BROKEN["triton"]) is None


def test_a_failure_of_the_judge_is_not_remembered() -> None:
    game = episode()
    kernel = game.read(GOOD)
    assert isinstance(kernel, Kernel)
    game.record(GOOD, verdict("unavailable"))
    assert game.known_verdict(kernel) is None
    assert game.ended == "cut"
    assert not game.trajectory.valid


@pytest.mark.parametrize(
    ("rule", "found", "turns", "ended"),
    [
        ("correct", ["wrong", "correct"], 2, "solved"),
        ("correct", ["wrong"] * 4, 4, "budget"),
        ("correct", ["wrong"] * 3 + ["correct"], 4, "solved"),
        ("correct", ["wrong", "unavailable"], 2, "cut"),
        ("correct", ["wrong"], 1, ""),
        ("never", ["correct"] * 4, 4, "budget"),
        ("never", ["correct"] * 3, 3, ""),
        ("no_improvement:2", ["wrong"] * 4, 3, "no_improvement"),
        ("no_improvement:1", ["wrong", "correct", "wrong"], 3, "solved"),
        ("no_improvement:9", ["wrong"] * 4, 4, "budget"),
        ("speedup:1.5", ["correct"] * 4, 4, "budget"),
    ],
)
def test_stop_rules(rule: str, found: list[str], turns: int, ended: str) -> None:
    game = play([verdict(status) for status in found], stop_when=rule)
    assert (len(game.turns), game.ended) == (turns, ended)
    assert game.over == bool(ended)
    assert game.trajectory.ended == ended
    assert game.trajectory.horizon == 4


@pytest.mark.parametrize("reward", ["sparse", "improvement"])
def test_progress_is_a_matter_of_the_kernel_and_not_of_its_score(reward: str) -> None:
    """Gains shrink on the way up, and a sparse reward sees none before the kernel is right."""
    steps = [verdict("compile_error"), verdict("runtime_error")]
    steps += [verdict("wrong", trials_passed=n) for n in (1, 2)]
    steps += [verdict("correct", speedup=s) for s in (1.0, 1.5, 1.6)]
    worse = [verdict("correct", speedup=1.6), verdict("rejected")]
    game = play(steps + worse, stop_when="no_improvement:2", reward=reward, max_turns=20)
    assert (len(game.turns), game.ended) == (9, "solved")


def test_a_rejected_kernel_is_no_progress_whatever_it_computed() -> None:
    late = Verdict(Status.REJECTED, compiled=True, trials_passed=4, trials=4)
    game = play([verdict("compile_error"), late, late], stop_when="no_improvement:1")
    assert (len(game.turns), game.ended) == (2, "no_improvement")


def test_a_turn_that_could_not_be_scored_cuts_the_episode() -> None:
    game = play([verdict("correct"), verdict("correct")], reward="kevin", stop_when="never")
    assert (len(game.turns), game.ended) == (1, "cut")
    assert not game.trajectory.valid


def test_the_speedup_rule_reads_the_low_end_of_the_interval() -> None:
    unsure = verdict("correct", speedup=3.0, speedup_low=1.4)
    sure = verdict("correct", speedup=1.6, speedup_low=1.5)
    game = play([unsure, sure], stop_when="speedup:1.5", reward="kevin")
    assert (len(game.turns), game.ended) == (2, "solved")


@pytest.mark.parametrize("text", ["correct", "never", "speedup:1.5", "no_improvement:3"])
def test_stop_rules_read_and_write_the_same_text(text: str) -> None:
    assert str(stop_rule(text)) == text
    assert stop_rule(stop_rule(text)) == stop_rule(text)


@pytest.mark.parametrize(
    "text",
    (
        *("", "solved", "correct:1", "never:2", "no_improvement:0", "no_improvement:1.5"),
        *("speedup", "speedup:", "speedup:fast", "speedup:-1", "speedup:nan", "speedup:inf"),
    ),
)
def test_other_stop_rules_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        stop_rule(text)


def test_only_the_speedup_rule_needs_speed() -> None:
    assert StopRule("speedup", 2.0).needs_speed
    assert not any(stop_rule(text).needs_speed for text in ("correct", "never", "no_improvement:1"))


@pytest.mark.parametrize(
    "options",
    [{"max_turns": 0}, {"language": "basic"}, {"ruleset": "lax"}, {"reward": "gold"}],
)
def test_bad_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        episode(**options)


def test_an_unknown_rule_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="no_improvement:<k>"):
        episode(stop_when="whenever")


def test_sync_and_async_drivers_get_the_same_turns() -> None:
    found = [verdict("compile_error"), verdict("wrong"), verdict("correct")]

    async def drive() -> Episode:
        game = episode()
        for number, each in enumerate(found):
            game.read(variant(number))
            await asyncio.sleep(0)
            game.record(variant(number), each)
        return game

    assert asyncio.run(drive()).trajectory == play(found).trajectory


def test_the_reply_is_parsed_once_and_kept() -> None:
    game = episode()
    game.read(GOOD)
    turn = game.record(GOOD, verdict("wrong"))
    assert turn.reply == Reply(
        SAMPLE_KERNELS["triton"], "Work out one element per program instance.", ()
    )


@given(texts, st.booleans())
def test_marked_answer_reads_as_the_argument_does(text: str, cut_off: bool) -> None:
    one, other = episode(), episode()
    assert one.read(Answer(text, cut_off)) == other.read(text, cut_off=cut_off)
    marked = one.record(Answer(text, cut_off), verdict("wrong"))
    assert marked == other.record(text, verdict("wrong"))
    assert type(marked.action) is str
    assert ("cut_off" in marked.reply.defects) is cut_off
