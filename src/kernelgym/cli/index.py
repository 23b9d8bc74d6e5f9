"""``kernelgym index``: build, query, describe and check indexes of solved problems."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from kernelgym.cli import judging
from kernelgym.cli.console import print_source, print_table, print_text
from kernelgym.cli.options import Command, MemoryOption
from kernelgym.cli.progress import progress_bar
from kernelgym.errors import UsageError
from kernelgym.languages import LANGUAGES
from kernelgym.paths import cache_folder

if TYPE_CHECKING:
    from kernelgym.evaluators.base import EvaluatorBase


@dataclass(frozen=True, kw_only=True)
class IndexBuildCommand(MemoryOption):
    """Build an index of solved problems.

    Kernels are judged, and only those that are correct are kept. A build that was killed and is
    given again finds its verdicts in the verdict cache.
    """

    corpus: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """synthetic, kernelbook[:PATH], sakana[:PATH], trajectories:FILE, or the path of rows; may be
    given several times."""
    out: str
    """Folder of the index; one that is there is replaced at the end."""
    model: str = "operators"
    """Embedder: operators, or a model that sentence-transformers reads, by folder or hub name."""
    revision: str = ""
    """Revision of a model on the hub."""
    model_device: str = "cpu"
    """Device that an embedding model runs on."""
    language: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Language of the kernels, all if not given; may be given several times."""
    hold_out: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Held-out problems as SUITE:SPLIT, such as Synthetic:heldout; entries that would give one away
    are left out; may be given several times."""
    for_: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="for")] = ()
    """Problems of later runs as SUITE[:SPLIT]: only the 20 entries nearest to each of them are
    judged; may be given several times."""
    verify: bool = True
    """Whether kernels are judged; if not, only the Synthetic suite's and recorded ones count as
    correct."""
    include_unverified: bool = False
    """Keep kernels that were not judged; prompts mark each of them as such."""
    verify_minutes: float | None = None
    """Minutes after which no more kernels are judged."""
    no_timing: bool = False
    """Judge correctness only; measure no speedup."""
    k: Annotated[int, tyro.conf.arg(aliases=["-k"])] = 3
    """Number of entries that prompts will show; 5 more are tested on each held-out problem."""
    device: str = "cpu"
    """Device on which kernels are judged."""
    ruleset: str = "strict"
    """Ruleset of the verdicts."""
    workers: int = 1
    """Kernels judged at the same time."""
    verdict_cache: str = ""
    """Folder in which verdicts are kept; kernelgym's cache folder if not given."""

    def run(self) -> int:
        """Build the index; return the exit code."""
        from kernelgym.indexing.build import IndexPlan, build_index
        from kernelgym.indexing.corpora import corpus_of
        from kernelgym.languages import language
        from kernelgym.retrieval.embedding_models import find_embedder
        from kernelgym.retrieval.prompt_part import part_of_suite

        if not self.corpus:
            raise UsageError("give at least one --corpus, such as --corpus synthetic")
        for name in self.language:
            language(name)
        if self.verify_minutes is not None and not self.verify_minutes > 0:
            raise UsageError(f"--verify-minutes must be above 0, got {self.verify_minutes}")
        if self.k < 1 or self.workers < 1:
            raise UsageError(f"-k and --workers are at least 1, got {self.k} and {self.workers}")
        plan = IndexPlan(
            tuple(map(corpus_of, self.corpus)),
            find_embedder(self.model, self.revision, device=self.model_device),
            self.language,
            self.device,
            held_out={text: part_of_suite(text) for text in self.hold_out},
            reach_of=tuple(problem for text in self.for_ for problem in part_of_suite(text)),
            verify=self.verify,
            include_unverified=self.include_unverified,
            minutes=self.verify_minutes,
            k=self.k,
        )
        if self.verify or self.hold_out:
            self._check_tools()
        built = build_index(plan, self.out, self._evaluator, progress_bar)
        for name, count in built.entries.items():
            print_text(f"{name}: {count} entries")
        if built.left_out:
            print_table(("left out", "entries"), built.left_out.items())
        if built.untested:
            print_text(
                f"{len(built.untested)} held-out problems were not tested for copies, such as "
                f"{next(iter(built.untested))}: {next(iter(built.untested.values()))}",
                "yellow",
            )
        print_text(f"{built.folder}")
        return 0

    def _check_tools(self) -> None:
        """Refuse languages that the device cannot judge; say how to index without judging."""
        archives = {name.partition(":")[0].partition("@")[0] for name in self.corpus}
        names = self.language or (("cuda",) if archives == {"sakana"} else ())
        for name in names:
            try:
                judging.check_tools(name, self.device)
            except UsageError as error:
                if self.hold_out:
                    raise
                raise UsageError(
                    f"{error}; to index such kernels without judging them, give --no-verify and "
                    "--include-unverified"
                ) from None

    def _evaluator(self, timing: bool) -> EvaluatorBase:
        timing = timing and not self.no_timing
        cache = self.verdict_cache or str(cache_folder() / "verdicts")
        return judging.open_evaluator(
            self.device, self.ruleset, self.workers, timing, self.memory, cache
        )


def _only_language(folder: str) -> str:
    """Return the one language that an index holds; ``triton`` if it holds several."""
    there = [name for name in LANGUAGES if (Path(folder) / name).is_dir()]
    return there[0] if len(there) == 1 else next(iter(LANGUAGES))


@dataclass(frozen=True, kw_only=True)
class IndexQueryCommand(Command):
    """Show the entries of an index that are most like a problem."""

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder of the index, or synthetic."""
    problem: str
    """Id of the problem, or the path of its file."""
    k: Annotated[int, tyro.conf.arg(aliases=["-k"])] = 3
    """Most entries to show."""
    language: str = ""
    """Language of the kernels; that of the index if it has only one, or else triton."""
    device: str = "cpu"
    """Device that the kernels are for."""
    model: str = ""
    """Folder or hub name of the index's model, if it moved since the build."""
    same_problem: bool = False
    """Show entries of the problem itself and its twins, too."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Print the entries; return the exit code."""
        from kernelgym.retrieval.prompt_part import Retrieval, load_index

        retrieval = Retrieval(self.folder, k=self.k, model=self.model)
        index = load_index(retrieval, self.language or _only_language(self.folder), self.device)
        problem = judging.problem_at(self.problem)
        found = index.search(problem, self.k, same_problem=self.same_problem)
        if self.json:
            rows = [
                {"score": each.score} | dataclasses.asdict(each.entry) for each in found.neighbours
            ]
            said: dict[str, Any] = {"problem": problem.id, "excluded": dict(found.excluded)}
            print(json.dumps(said | {"entries": rows}))
            return 0
        for neighbour in found.neighbours:
            entry = neighbour.entry
            about = ", ".join(filter(None, (entry.verdict, entry.licence)))
            print_text(f"{neighbour.score:.3f}  {entry.id}  {entry.name}  ({about})", "bold")
            print_source(entry.kernel)
        excluded = ", ".join(f"{count} by {reason}" for reason, count in found.excluded.items())
        print_text(f"{len(found.neighbours)} entries; excluded: {excluded or 'none'}", "dim")
        return 0


@dataclass(frozen=True, kw_only=True)
class IndexInfoCommand(Command):
    """Describe an index: contents, origins, licences, and what was left out."""

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder of the index."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Print the description; return the exit code."""
        from kernelgym.retrieval.folder import read_manifest

        manifest = read_manifest(self.folder)
        if self.json:
            print(json.dumps(manifest))
            return 0
        embedder = manifest["embedder"]
        rows: list[tuple[str, object]] = [
            ("embedder", embedder["model"]),
            ("numbers of a vector", embedder["dimension"]),
        ]
        for name, about in manifest["languages"].items():
            rows.append((f"entries, {name}", f"{about['entries']} (digest {about['digest']})"))
        for corpus in manifest.get("corpora", ()):
            revision = f" at {corpus['revision']}" if corpus["revision"] else ""
            rows.append((f"corpus {corpus['corpus']}{revision}", f"{corpus['rows']} rows"))
            licences = corpus["licences"].items()
            rows += [(f"  licence {licence}", f"{count} entries") for licence, count in licences]
        rows += [(f"verdict {v}", f"{n} entries") for v, n in manifest.get("verdicts", {}).items()]
        rows += [(f"left out: {r}", n) for r, n in manifest.get("left_out", {}).items()]
        held_out = manifest.get("held_out", {})
        rows += [(f"held out: {name}", f"{len(ids)} problems") for name, ids in held_out.items()]
        total = sum(map(len, held_out.values()))
        for name, untested in manifest.get("untested", {}).items():
            rows.append((f"tested for copies, {name}", f"{total - len(untested)} of {total}"))
        print_table(("fact", "value"), rows)
        return 0


@dataclass(frozen=True, kw_only=True)
class IndexCheckCommand(Command):
    """Check an index: its files, entries and vectors, and that its embedder gives them again."""

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder of the index."""
    model: str = ""
    """Folder or hub name of the index's model, if it moved since the build."""

    def run(self) -> int:
        """Check the index; return the exit code."""
        from kernelgym.retrieval.folder import check_index

        for line in check_index(self.folder, model=self.model):
            print_text(line)
        return 0
