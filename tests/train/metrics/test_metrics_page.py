"""The page on training lists every metric of a step, and none that no code knows."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import kernelgym_train
from kernelgym import Kernel, Problem, Verdict
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.judge.device_health import DeviceHealth
from kernelgym.prompts.observer import Observer
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Finding
from kernelgym_train.config.config import Config
from kernelgym_train.config.settings import read_settings
from kernelgym_train.rollout.sampling import Curriculum, ProblemSampler
from kernelgym_train.run.runlog import RunLog
from kernelgym_train.run.steps import Steps
from kernelgym_train.types import Completion, SampleRequest
from support import tiny

PAGE = Path(__file__).parents[3] / "docs" / "training.md"
FREE = {
    r"^level_\d+/": "level_N/",
    r"^turn_\d+/": "turn_N/",
    r"^reward_part/.*": "reward_part/PART",
    r"^status/.*": "status/STATUS",
    r"^finding/.*": "finding/CODE",
    r"^filter/.*_(seen|passed)": r"filter/NAME_\1",
    r"^curriculum/(?!levels$).*": "curriculum/BUCKET",
}
"""What stands on the page for names that a run's data make."""
BY_TRL = {f"train/{name}" for name in ("loss", "grad_norm", "entropy", "kl", "learning_rate")}
"""Names that TRL gives what it measures; ours put ``train/`` before them."""


def listed() -> list[str]:
    """Return the names of the page's table, in its order."""
    section = PAGE.read_text().split("\n## Metrics\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def general(name: str) -> str:
    for pattern, stands in FREE.items():
        name = re.sub(pattern, stands, name)
    return name


def judged(problem: Problem, kernel: Kernel) -> Verdict:
    if "t = 0," not in kernel.source:
        return verdict("wrong", findings=(Finding("no_custom_kernel", "hard"),))
    return verdict("correct", speedup=2.0, speedup_low=1.5)


class Answers:
    def generate(self, requests: list[SampleRequest]) -> list[Completion]:
        texts = (
            f"<KERNEL>class ModelNew: t = {r.key.trajectory}, {r.seed}</KERNEL>" for r in requests
        )
        return [Completion(text, (1, 2), (3, 4), (-0.5, -0.2), "stop", 0) for text in texts]


def names_of_a_step(folder: Path) -> Iterator[str]:
    log = RunLog.create(folder / "run", {}, {})
    judge = ScriptedEvaluator(judged, ruleset="kernelbench")
    judge.health = (DeviceHealth("cpu", in_service=True, lost=0),)
    settings = (
        *("sampling.problems_per_step=2", "sampling.group_size=2", "sampling.refill_rounds=1"),
        *("reward.preset=stage2", "run.seed=1", "logging.histograms_every=1"),
    )
    steps = Steps(
        read_settings(Config, {}, settings),
        sampler=ProblemSampler(tiny.problems(4), 1, Curriculum()),
        evaluator=log.verdicts(judge),
        observer=Observer("triton", "cpu", "kernelbench", max_turns=2, examples="zero_shot"),
        rules=EpisodeConfig(),
        log=log,
    )
    for step in range(6):  # a bucket's solve rate is known after some
        taken = asyncio.run(steps.take(step, Answers()))
        steps.finish(step, taken, {}, entropy=1.0, gap=0.1)
    log.close()
    for line in (folder / "run" / "metrics.jsonl").read_text().splitlines():
        yield from json.loads(line)


def test_metrics_of_a_step_are_on_the_page(tmp_path: Path) -> None:
    found = {general(name) for name in names_of_a_step(tmp_path)}
    assert {"turn_N/correct_rate", "episode/best_speedup_mean", "guards/gap"} <= found
    assert not found - set(listed())


def test_metrics_on_the_page_are_written_by_code(tmp_path: Path) -> None:
    names = listed()
    assert len(names) == len(set(names)) > 80
    source = "\n".join(
        path.read_text() for path in Path(kernelgym_train.__file__).parent.rglob("*.py")
    )
    known = {general(name) for name in names_of_a_step(tmp_path)} | BY_TRL
    for name in names:
        if name.startswith("train/clip_ratio/"):
            continue  # TRL's, too
        assert name in known or f'"{name}"' in source, name
