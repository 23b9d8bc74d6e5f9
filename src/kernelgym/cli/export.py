"""``kernelgym rescore`` and ``kernelgym export``: new files from trajectories and runs."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from kernelgym.cli.console import print_text
from kernelgym.cli.options import Command, path_apart
from kernelgym.cli.trajectory import note_cut, source_of
from kernelgym.errors import UsageError
from kernelgym.types import GAMMA

if TYPE_CHECKING:
    from kernelgym.prompts.observer import Observer
    from kernelgym.records.trajectories import EpisodeRecord


@dataclass(frozen=True, kw_only=True)
class RescoreCommand(Command):
    """Score the episodes of a file by another reward preset, without judging anything again."""

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """A JSONL file of episodes."""
    reward: str
    """Reward preset to score by."""
    out: str
    """Path of the file to write."""
    stop_when: str | None = None
    """Stop rule by which episodes are truncated again, such as speedup:1.5; the recorded one if not
    given."""

    def run(self) -> int:
        """Write the file with new scores; return the exit code."""
        from kernelgym.episodes.stopping import stop_rule
        from kernelgym.records.rescore import rescore
        from kernelgym.records.trajectories import read_records, write_records
        from kernelgym.rewards import reward_preset

        preset = reward_preset(self.reward)
        rule = None if self.stop_when is None else stop_rule(self.stop_when)
        changed, before, after = 0, 0.0, 0.0

        def scored() -> Iterator[EpisodeRecord]:
            nonlocal changed, before, after
            for record in read_records(self.file, on_cut=note_cut):
                new = rescore(record, preset, stop_when=rule)
                changed += new.trajectory.scores != record.trajectory.scores
                before += sum(record.trajectory.scores)
                after += sum(new.trajectory.scores)
                yield new

        count = write_records(path_apart(self.out, self.file), scored())
        if not count:
            print_text(f"{self.file} holds no episode", "yellow")
            return 0
        print_text(
            f"{count} episodes scored by {preset.name}, {changed} of them differently than before; "
            f"mean sum of scores {before / count:.3f} before, {after / count:.3f} now"
        )
        return 0


@dataclass(frozen=True, kw_only=True)
class ExportCommand(Command):
    """Write rows to train on, or a run in the formats of KernelBench or Hugging Face.

    An answer that cannot be parsed or was rejected is never an example to learn from; it can only
    be the rejected side of a pair.
    """

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Path of a JSONL file of episodes, or of a run's folder for kernelbench and hf."""
    format: Literal["sft", "completions", "preferences", "kernelbench", "hf"]
    """sft: messages; completions: prompt and completion; preferences: prompt, chosen, rejected;
    kernelbench: kernels, results and baselines of one level; hf: a dataset, one row an answer."""
    out: str
    """Path of the file to write, or of a folder for kernelbench and hf."""
    level: int | None = None
    """Level of the problems, for kernelbench; that of the run if it has only one."""
    turn: Literal["last", "best", "first"] = "last"
    """Turn whose kernel represents an episode, for kernelbench."""
    untimed: Literal["refuse", "keep"] = "refuse"
    """Treatment of correct kernels without a time, for kernelbench: refuse the export, or keep them
    (KernelBench's geometric mean is NaN then)."""
    by: Literal["score", "return"] = "score"
    """Value of an answer: its score, or the discounted return from its turn on."""
    gamma: float = GAMMA
    """Discount factor, with --by return."""
    least: float = -math.inf
    """Smallest value (see --by) at which an answer becomes an example."""
    wrong: bool = False
    """Also make examples of answers whose kernel is wrong or fails."""
    untidy: bool = False
    """Also make examples of answers whose form has defects."""
    margin: float = 0.0
    """Smallest difference between the values (see --by) of the two sides of a pair."""
    pairs: Literal["prompt", "problem"] = "prompt"
    """Text that the two sides of a pair share: the whole prompt, or only the problem."""
    most: int | None = None
    """Largest number of examples for each problem, or of pairs for each prompt (one if not given);
    the best are taken first."""
    unchecked: bool = False
    """Write the prompts as this version makes them, even where they differ from the recorded
    digest of what the model read."""
    tokenizer: str = ""
    """Folder or hub name of the tokenizer by which the episodes' prompts were cut to length; four
    characters count as one token if not given. A training run uses its model's tokenizer."""

    def run(self) -> int:
        """Write the rows or the folder; return the exit code."""
        if self.format in ("kernelbench", "hf"):
            return self._run_folder()
        from kernelgym.records import export
        from kernelgym.records.jsonlines import write_lines
        from kernelgym.records.trajectories import read_records

        rules = export.ExportRules(
            by=self.by,
            gamma=self.gamma,
            least=self.least,
            wrong=self.wrong,
            untidy=self.untidy,
            margin=self.margin,
            pairs=self.pairs,
            most=self.most,
            checked=not self.unchecked,
        )
        makers: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
            "sft": export.sft_rows,
            "completions": export.completion_rows,
            "preferences": export.preference_rows,
        }
        unscored: list[int] = []

        def given() -> Iterator[EpisodeRecord]:
            for record in read_records(self.file, on_cut=note_cut):
                turns = record.trajectory.turns
                unscored.extend(turn.index for turn in turns if not turn.score.valid)
                yield source_of(record)

        records = given()
        rows = makers[self.format](records, rules, _observers(self.file, self.tokenizer))
        count = write_lines(path_apart(self.out, self.file), rows)
        what = "pair" if self.format == "preferences" else "example"
        print_text(f"{count} {what}{'' if count == 1 else 's'} written to {self.out}")
        if not count and self.format == "preferences" and self.pairs == "prompt":
            print_text("no two answers to one prompt differ enough; try --pairs problem", "yellow")
        elif not count and unscored:
            told = "answers have" if len(unscored) > 1 else "answer has"
            print_text(
                f"{len(unscored)} {told} no valid score: the judge failed, or the reward needs a "
                "time that was not measured; `kernelgym rescore --reward stage2` needs none",
                "yellow",
            )
        elif not count and not self.wrong:
            print_text("no answer became an example; --wrong also takes honest failures", "yellow")
        return 0

    def _run_folder(self) -> int:
        from kernelgym.benchmark.recorded_runs import read_run

        run, out = read_run(self.file), path_apart(self.out, self.file)
        if self.format == "hf":
            from kernelgym.benchmark.interchange.hub import export_dataset

            print_text(f"{export_dataset(run, out)} answers written to {out}")
            return 0
        from kernelgym.benchmark.interchange.exporting import export_kernelbench

        levels = sorted({outcome.level for outcome in run.outcomes})
        if self.level is None and len(levels) != 1:
            told = ", ".join(map(str, levels)) or "none"
            raise UsageError(
                "--format kernelbench writes one level; name it with --level; levels of this run: "
                f"{told}"
            )
        level = levels[0] if self.level is None else self.level
        done = export_kernelbench(run, out, level=level, turn=self.turn, untimed=self.untimed)
        print_text(
            f"{done.kernels} kernels and {done.results} results written to {out}, baselines to "
            f"results/timing/{done.hardware} in it"
        )
        if done.left_out:
            told = f"{len(done.left_out)} samples have no result; left_out.json says why"
            print_text(told, "yellow")
        return 0


def _observers(file: str, tokenizer: str) -> Callable[[EpisodeRecord], Observer]:
    """Return a function from a record to its observer, which counts in a tokenizer's tokens.

    Prompts of a training run that showed its own kernels are rebuilt from its earlier episodes in
    the file.

    Raises:
        UsageError: If there is no such tokenizer.
    """
    from kernelgym.indexing.growing import RecordedArchives
    from kernelgym.records.observer_settings import recorded_observer

    archives = RecordedArchives(file)
    if not tokenizer:
        return lambda record: archives.observer(recorded_observer(record))
    from kernelgym.hub import snapshot

    folder = tokenizer if Path(tokenizer).is_dir() else snapshot(tokenizer)
    try:
        from transformers import AutoTokenizer

        words: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # a folder may hold anything
        raise UsageError(
            f"tokenizer {tokenizer!r} cannot be read: {type(error).__name__}: {str(error)[:200]}; "
            "name the model's folder, which a run's config.yaml has as model.id"
        ) from None

    @functools.lru_cache(maxsize=4096)
    def count(text: str) -> int:
        return len(words(text, add_special_tokens=False)["input_ids"])

    def counting(record: EpisodeRecord) -> Observer:
        return dataclasses.replace(archives.observer(recorded_observer(record)), count=count)

    return counting
