"""A run that shows its own kernels: resumed, rolled back, exported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelgym import Kernel, Problem, UsageError, Verdict
from kernelgym.cli import main as command_line
from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.indexing.played import played_entries
from kernelgym.prompts.observer import render
from kernelgym.records.observer_settings import recorded_observer
from kernelgym.records.trajectories import EpisodeRecord, read_records
from kernelgym.retrieval.archive import forget_archives
from kernelgym.retrieval.index import Index
from kernelgym.suites.synthetic import SyntheticSuite, solve
from kernelgym.testing import ScriptedEvaluator, reply, verdict
from kernelgym.types import Trajectory
from kernelgym_train.config.config import Config
from kernelgym_train.launch.assembly import make_steps, training_observer
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.run.steps import Steps
from kernelgym_train.types import Completion, SampleRequest
from support import tiny

PROBLEMS = SyntheticSuite().problems(1, split="rl")[:5]
STEPS = 5


class Writes:
    """Answers wrongly first, then with a solution whose style its seed decides."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: SampleRequest) -> Completion:
        self.read.append(render(request.messages))
        problem = next(p for p in PROBLEMS if p.source.strip() in self.read[-1])
        source = solve(problem, "triton", request.seed % 9973).source
        text = reply(Kernel(source if request.key.turn else f"{source}# wrong\n", "triton"))
        return Completion(text, (1,), (2,), None, "stop", 0)


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    return verdict("wrong" if "# wrong" in kernel.source else "correct")


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    """Settings of a run with an archive beside a small index."""
    folder = tmp_path_factory.mktemp("index") / "small"
    observer = training_observer(tiny.config("env.suite=Synthetic"), "cpu")
    records = []
    for problem in SyntheticSuite().problems(2, split="rl")[:8]:
        game = Episode(problem, EpisodeConfig(language="triton", max_turns=2, stop_when="correct"))
        game.read(text := reply(solve(problem)))
        game.record(text, verdict("correct"))
        played = Trajectory(problem, game.turns, "solved", 2)
        records.append(EpisodeRecord(played, "triton", observer.device, "strict", "sparse"))
    Index.from_entries(played_entries(records)).save(folder)
    return tiny.config(
        *("env.suite=Synthetic", "env.levels=[1]", "env.split=rl", "evaluation.split=heldout"),
        *(f"retrieval.index={folder}", "retrieval.archive=true", "retrieval.when=always"),
        *("retrieval.k=2", "retrieval.tokens=4000", "retrieval.least=0.0"),
        *("sampling.max_prompt_tokens=16000", "env.max_turns=2", "reward.preset=sparse"),
        *("sampling.problems_per_step=2", "sampling.group_size=2", "sampling.refill_rounds=0"),
    )


def steps_of(config: Config, log: RunLog) -> Steps:
    judge = ScriptedEvaluator(judged, ruleset=config.rules)
    return make_steps(config, PROBLEMS, judge, log=log)


def go(steps: Steps, log: RunLog, first: int, last: int) -> list[str]:
    policy = Writes()
    for step in range(first, last):
        taken = asyncio.run(steps.take(step, policy))
        steps.finish(step, taken, {})
        folder = log.folder / "checkpoints" / str(step + 1)
        folder.mkdir()
        log.commit(step + 1, folder, {"steps": steps.state()}, good=step < 2)
    return policy.read


def resumed(config: Config, folder: Path, **options: Any) -> tuple[Steps, RunLog, int]:
    forget_archives()
    log = RunLog.resume(folder, **options)
    steps = steps_of(config, log)
    assert log.start is not None
    steps.load(log.start.state()["steps"])
    return steps, log, log.start.step


def files(folder: Path) -> dict[str, Any]:
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timeless = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in metrics]
    return {"trajectories": (folder / "trajectories.jsonl").read_text(), "metrics": timeless}


@pytest.fixture(scope="module")
def unbroken(config, tmp_path_factory) -> tuple[Path, list[str]]:
    """Return the folder of an unbroken run, and what was read."""
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    log = RunLog.create(folder, {}, {})
    return folder, go(steps_of(config, log), log, 0, STEPS)


def test_prompts_show_what_earlier_steps_found(unbroken) -> None:
    folder, _ = unbroken
    records = list(read_records(folder / "trajectories.jsonl"))
    archived: set[str] = set()
    shown = 0
    for step in range(STEPS):
        own = [r for r in records if r.key.startswith(f"{step}/")]
        for record in own:
            part = record.observer["parts"][0]["fields"]
            assert part["archive_step"] == step
            mine = {each for turn in record.retrieved for each in turn if each in archived}
            shown += len(mine)
            problem = record.trajectory.problem
            assert not any(each.startswith(f"{problem.id}:") for each in mine)
        archived |= {entry.id for entry in played_entries(own, 99)}
        assert {part["archive"]} == {r.observer["parts"][0]["fields"]["archive"] for r in own}
    assert shown > 2
    assert [row["retrieval/archive"] for row in files(folder)["metrics"]][:2] == [0.0, 4.0]


@pytest.mark.parametrize("stop", [1, 4])
def test_resumed_run_equals_the_unbroken_one(stop, config, unbroken, tmp_path) -> None:
    log = RunLog.create(tmp_path / "run", {}, {})
    steps = steps_of(config, log)
    go(steps, log, 0, stop)
    asyncio.run(steps.take(stop, Writes()))  # killed before its checkpoint
    steps, log, first = resumed(config, tmp_path / "run")
    assert first == stop
    go(steps, log, first, STEPS)
    assert files(tmp_path / "run") == files(unbroken[0])


def test_rollback_takes_steps_out_of_the_archive(config, tmp_path) -> None:
    log = RunLog.create(tmp_path / "run", {}, {})
    go(steps_of(config, log), log, 0, 4)
    steps, log, first = resumed(config, tmp_path / "run", good=True)
    assert first == 2 and steps.archive is not None and steps.archive.step == 2
    steps.sampler.seed_epoch += 1
    go(steps, log, first, 3)
    records = list(read_records(log.trajectories))
    assert {entry.id for entry in steps.archive.entries} <= {
        entry.id for entry in played_entries(records, 99)
    }
    assert {record.key.partition("/")[0] for record in records} == {"0", "1", "2"}


def test_export_makes_the_prompts_of_an_archive_again(unbroken, tmp_path, capsys) -> None:
    folder, read = unbroken
    forget_archives()
    out = tmp_path / "rows.jsonl"
    command = ["export", str(folder / "trajectories.jsonl"), "--out", str(out)]
    assert command_line([*command, "--format", "completions", "--wrong"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) > 20
    for row in rows:
        contents = [message["content"] for message in row["prompt"]]
        assert all(any(text in prompt for prompt in read) for text in contents)
    # Without the episodes of its first step there is no such archive.
    lines = (folder / "trajectories.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "late.jsonl").write_text("".join(lines[2:]))
    forget_archives()
    command[1] = str(tmp_path / "late.jsonl")
    assert command_line([*command, "--format", "completions", "--wrong"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "archive of step 1 with digest" in said and "trajectories.jsonl, whole" in said


def test_record_of_an_archive_names_it(unbroken) -> None:
    record = list(read_records(unbroken[0] / "trajectories.jsonl"))[-1]
    part = recorded_observer(record).parts[0]
    assert part.archive_step == STEPS - 1 and len(part.archive) == 16
    assert part.hold_out == ("Synthetic:heldout:L1",)


def test_changed_file_is_refused_on_resume(config, tmp_path) -> None:
    log = RunLog.create(tmp_path / "run", {}, {})
    go(steps_of(config, log), log, 0, 2)
    path = tmp_path / "run" / "trajectories.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(UsageError, match="episodes were taken out of the file"):
        resumed(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (("retrieval.index=",), "retrieval.index is empty"),
        (("retrieval.index=synthetic", "logging.trajectories=false"), "writes none"),
    ],
)
def test_archive_that_cannot_be_is_refused(settings, error) -> None:
    with pytest.raises(UsageError, match=error):
        tiny.config("env.suite=Synthetic", "retrieval.archive=true", *settings)
