"""The red team's exploits, offered to a search by a writer."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

from kernelgym import Kernel
from kernelgym.cli.redteam import load_corpus
from kernelgym.redteam.corpus import CorpusEntry
from kernelgym.types import Evaluator, Problem
from kernelgym_train.mcgs import optimize
from kernelgym_train.mcgs.budget import Budget
from kernelgym_train.mcgs.config import SearchConfig
from kernelgym_train.mcgs.writing.writer import KernelWriter
from support.writers import WholePolicy


class Offered:
    """Exploits of a language by problem, each problem with an honest kernel to start from."""

    def __init__(self, language: str, device: str) -> None:
        entries, self.problems = load_corpus(Path(__file__).parents[1] / "adversarial")
        self.starts: dict[str, CorpusEntry] = {}
        self.exploits: dict[str, list[CorpusEntry]] = collections.defaultdict(list)
        for each in entries:
            if each.language == language and each.runs_on(device) and not each.open:
                if each.kind == "honest":
                    self.starts.setdefault(each.problem, each)
                else:
                    self.exploits[each.problem].append(each)
        both = set(self.exploits) & set(self.starts)
        self.names = sorted(both, key=lambda name: (-len(self.exploits[name]), name))
        """Names of the problems, those with most exploits first."""

    def problem(self, name: str) -> Problem:
        return self.problems[name]


def offer(
    corpus: Offered,
    name: str,
    evaluator: Evaluator,
    outdir: Path,
    *,
    workers: int = 1,
    **given: Any,
) -> dict[str, Any]:
    """Offer a problem's exploits by a writer, check that none is the best; return the outcomes."""
    start = corpus.starts[name].kernel
    offered = [entry.kernel for entry in corpus.exploits[name]]
    with KernelWriter(WholePolicy(offered), repairs=0) as writer:
        config = SearchConfig(
            Budget(3 * len(offered)),
            algo="best_first",
            approximate=True,
            workers=workers,
            writer=writer,
            moves=("cache_policy_cg",),
            **given,
        )
        result = optimize(corpus.problem(name), start, evaluator, outdir, config)
    best = (outdir / result["best"]["path"]).read_bytes().decode()
    assert Kernel(best, start.language).digest not in {kernel.digest for kernel in offered}
    assert not [move for move, *_ in result["best"]["moves"] if move.startswith("written:")]
    return {**result["writer"]["outcomes"], "statuses": result["failures"]}
