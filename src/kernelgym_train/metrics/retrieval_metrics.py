"""Metrics of retrieval: what prompts of a step showed, and how much answers copied of it.

Contract: pure, but for reading the index that the observer names. Metrics are means over the
prompts and answers of trajectories that count. A metric without a value to average is left out:

- ``retrieval/examples``, ``retrieval/tokens``: entries of a prompt, and their tokens;
- ``retrieval/excluded_REASON``: entries that were excluded for a problem;
- ``retrieval/copied``: share of an answer's runs of six words that stand in the kernels shown, of
  answers to prompts that show some; ``retrieval/verbatim``: share of these answers whose kernel is
  one that was shown, spacing aside.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.episodes.playing import history_budget
from kernelgym.prompts.observer import Observer
from kernelgym.retrieval.entry import IndexEntry
from kernelgym.retrieval.exclusion import REASONS
from kernelgym.retrieval.prompt_part import Retrieval, load_indexes
from kernelgym.types import Problem
from kernelgym_train.credit.credit import counts
from kernelgym_train.types import Rollout

_EXCLUDED = {
    "id": "retrieval/excluded_id",
    "source": "retrieval/excluded_source",
    "operators": "retrieval/excluded_operators",
}
_RUN = 6
_WORD = re.compile(r"\w+|[^\w\s]")


def retrieval_metrics(
    rollouts: Iterable[Rollout], observer: Observer, rules: EpisodeConfig
) -> dict[str, float]:
    """Return the metrics of retrieval of a step; none if prompts show no entries.

    Args:
        rollouts: Episodes of the step.
        observer: Observer that made the prompts.
        rules: Rules by which episodes were played.
    """
    parts = [part for part in observer.parts if isinstance(part, Retrieval)]
    if not parts:
        return {}
    entries: dict[str, IndexEntry] = {}
    for part in parts:
        for index in load_indexes(part, observer.language, observer.device):
            entries |= {entry.id: entry for entry in index.entries}
    found: dict[str, list[float]] = defaultdict(list)
    problems: dict[str, Problem] = {}
    for rollout in rollouts:
        if not counts(rollout):
            continue
        played = rollout.trajectory
        problems.setdefault(played.problem.digest, played.problem)
        budget = history_budget(played.problem, observer, rules)
        for turn in played.turns:
            ids, tokens = observer.retrieved(played.problem, played.turns[: turn.index], budget)
            found["retrieval/examples"].append(float(len(ids)))
            found["retrieval/tokens"].append(float(tokens))
            kernel = turn.reply.kernel
            shown = [entries[each].kernel for each in ids if each in entries]
            if kernel is None or not shown:
                continue
            found["retrieval/copied"].append(copied_share(kernel.source, shown))
            same = kernel.source.split() in [source.split() for source in shown]
            found["retrieval/verbatim"].append(float(same))
    for problem in problems.values():
        for part in parts:
            if part.same_problem:
                continue
            excluded: Counter[str] = Counter()
            for index in load_indexes(part, observer.language, observer.device):
                excluded.update(index.search(problem, 1).excluded)
            for reason in REASONS:
                found[_EXCLUDED[reason]].append(float(excluded[reason]))
    return {name: math.fsum(each) / len(each) for name, each in found.items()}


def copied_share(source: str, shown: Sequence[str]) -> float:
    """Return the share of a source's runs of six words that also stand in other sources.

    It is 0.0 for a source of fewer than six words.

    Args:
        source: Source of the answer's kernel.
        shown: Sources of kernels that its prompt showed.
    """
    own = _runs(source)
    if not own:
        return 0.0
    there = frozenset().union(*map(_runs, shown))
    return len(own & there) / len(own)


@lru_cache(maxsize=1024)
def _runs(source: str) -> frozenset[tuple[str, ...]]:
    words = _WORD.findall(source)
    return frozenset(tuple(words[start : start + _RUN]) for start in range(len(words) - _RUN + 1))
