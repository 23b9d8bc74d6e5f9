"""`episode_of`: the changes from a search's start to its best kernel, as an episode of turns.

Contract: each turn is a state with a full verdict, made from the state of the turn before. Its
text is an answer that a model could have given: the recipes of its moves, and the whole kernel. Its
prompt is the plain observer's, with the start as the kernel to improve, so that
`kernelgym.records.export` can make it again. Scores are of the preset ``kevin``. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelgym import EpisodeRecord
from kernelgym.answers.parsing import parse
from kernelgym.feedback import feedback
from kernelgym.prompts.observer import Observer, render
from kernelgym.rewards import reward_preset, score
from kernelgym.rulesets import Ruleset
from kernelgym.types import Trajectory, Turn, Verdict, text_digest
from kernelgym_train.mcgs.recipes import recipe_of
from kernelgym_train.mcgs.state import SearchState
from kernelgym_train.mcgs.task import SearchTask
from kernelgym_train.mcgs.variant import Variant

WRITER = "mcgs"
_REWARD = "kevin"


def way_to(state: SearchState, best: str) -> tuple[str, ...]:
    """Return the states on the path from the search's start to its best, without the start.

    The start is left out. Of several parents the first one counts. A best that lost steps when it
    was minimised is not a node of the graph; it follows the state that had these steps.

    Args:
        state: The search.
        best: Key of the best.
    """
    way = [] if best in state.graph.nodes else [best]
    key = state.incumbent if way else best
    while key != state.start:
        way.append(key)
        key = state.graph.nodes[key].parents[0]
    return tuple(reversed(way))


def episode_of(
    task: SearchTask,
    state: SearchState,
    best: str,
    verdict_of: Callable[[str], Verdict | None],
    *,
    device: str,
    ruleset: Ruleset,
) -> EpisodeRecord | None:
    """Return the episode; None if no verdict is known.

    Args:
        task: Task that was searched.
        state: The search.
        best: Key of the best.
        verdict_of: Function that returns a state's full verdict; None without one, which leaves
            the state out.
        device: Device of the verdicts.
        ruleset: Ruleset of the verdicts.
    """
    judged = [(key, verdict) for key in way_to(state, best) if (verdict := verdict_of(key))]
    if not judged:
        return None
    language, preset = task.start.language, reward_preset(_REWARD)
    observer = Observer(language, device, ruleset, len(judged))
    turns: list[Turn] = []
    read: list[str] = []
    before = state.variants[state.start]
    for key, verdict in judged:
        messages = observer.observe(task.problem, turns, start=task.start)
        read.append(text_digest(render(messages)))
        variant = state.variants[key]
        text = _answer(before, variant)
        reply = parse(text, language)
        said = feedback(verdict, reply)
        scored = score(preset, reply, verdict, turns)
        turns.append(Turn(len(turns), text, reply, verdict, said, scored))
        before = variant
    return EpisodeRecord(
        Trajectory(task.problem, tuple(turns), "budget", len(turns)),
        language=language,
        device=device,
        ruleset=ruleset.label,
        reward=preset.name,
        stop_when="never",
        start=task.start.source,
        observations=tuple(read),
        writer=WRITER,
        key=task.name,
    )


def _answer(before: Variant, variant: Variant) -> str:
    """Return the changes in words, and the kernel's text."""
    said = []
    for step in variant.applied:
        if step not in before.applied:
            recipe = recipe_of(step.move, variant.language)
            said.append(" ".join(filter(None, (f"{step.move} ({step.choice}).", recipe))))
    for step in before.applied:
        if step not in variant.applied:
            said.append(f"Without {step.move} ({step.choice}).")
    source = variant.kernel().source
    kernel = f"<KERNEL>\n```python\n{source.rstrip()}\n```\n</KERNEL>"
    return "\n".join([*said, "", kernel]) if said else kernel
