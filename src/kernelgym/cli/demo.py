"""``kernelgym demo``: four episodes of the scripted agent, really judged, in under a minute.

Two episodes on Synthetic problems, two on KernelBench's if ``KERNELBENCH_ROOT`` names a checkout,
else on a small folder of problems of ours. The agent hands in a broken kernel, reads the
feedback, repairs it, and in C++ makes it faster than PyTorch.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelgym.cli import judging
from kernelgym.cli.console import print_source, print_table, print_text
from kernelgym.cli.demo_kernels import GATED_NORM, gated_norm_drafts, rnn_drafts
from kernelgym.cli.options import Options
from kernelgym.cli.play import episode_of, make_env, play_episode
from kernelgym.cli.scripted import Draft, ScriptedAgent, synthetic_drafts
from kernelgym.cli.transcript import print_heading, problem_title, summary_row
from kernelgym.suites.base import Suite
from kernelgym.types import GAMMA, Evaluator, Trajectory

__all__ = ["Demo", "Scene", "play_scene", "scenes"]

_OURS = "Synthetic-L1-MultiTurn"
"""Environment that a suite of ours is played in, in place of its own."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One episode of the demo."""

    env_id: str
    language: str
    problem_id: str
    drafts: tuple[Draft, ...]
    """What the agent hands in, one after the other."""
    suite: Suite | None = None
    """A suite that takes the place of the environment's own."""
    stop_when: str = "correct"


@dataclass(frozen=True, kw_only=True)
class Demo(Options):
    """Watch a scripted agent play four episodes: broken kernel, feedback, repair, speed."""

    seed: int = 0
    """Chooses the defects and the style of the Synthetic kernels."""

    def run(self) -> int:
        """Play the episodes; returns the exit code: 1 if one was not solved."""
        started = time.monotonic()
        evaluator = judging.make_evaluator("cpu", "strict", workers=1)
        played = []
        try:
            judging.check_tools("cpp", "cpu")
            with tempfile.TemporaryDirectory(prefix="kernelgym-demo-") as folder:
                for scene in scenes(self.seed, Path(folder)):
                    played.append((play_scene(scene, evaluator), scene.language))
        finally:
            evaluator.close()
        print_text("")
        print_heading("what was played")
        columns = ("problem", "language", "turns", "status per turn", "speedup", "reward")
        rows = [summary_row(trajectory, language, GAMMA) for trajectory, language in played]
        print_table((*columns, f"returns (gamma {GAMMA:g})"), rows)
        print_text(
            f"Triton runs in its interpreter on a CPU, so only its correctness is judged. "
            f"{len(played)} episodes took {time.monotonic() - started:.0f} s.",
            "dim",
        )
        return 0 if all(t.turns[-1].verdict.correct for t, _ in played) else 1


def scenes(seed: int, folder: Path) -> tuple[Scene, ...]:
    """Return the demo's episodes; a small suite of ours is written to `folder`."""
    from kernelgym.suites import suite
    from kernelgym.suites.kernelbench import ROOT_VARIABLE

    (folder / "gated_norm.py").write_text(GATED_NORM)
    ours = suite(str(folder), name="Demo")
    synthetic = suite("Synthetic")
    chain = synthetic.get("Synthetic/L2/4")
    norm = synthetic.get("Synthetic/L1/3")
    found = [
        Scene(
            "Synthetic-L2-MultiTurn", "triton", chain.id, synthetic_drafts(chain, "triton", seed)
        ),
        Scene("Synthetic-L1-MultiTurn", "cpp", norm.id, synthetic_drafts(norm, "cpp", seed)),
        Scene(_OURS, "triton", "Demo/gated_norm", gated_norm_drafts("triton"), ours),
    ]
    rnn = suite("KernelBench").get("KernelBench/L3/34") if os.environ.get(ROOT_VARIABLE) else None
    if rnn is not None and rnn.name == "34_VanillaRNNHidden":
        found.append(Scene("KernelBench-L3-MultiTurn", "cpp", rnn.id, rnn_drafts()))
    else:
        drafts = gated_norm_drafts("cpp")
        found.append(Scene(_OURS, "cpp", "Demo/gated_norm", drafts, ours, "speedup:1"))
    return tuple(found)


def play_scene(scene: Scene, evaluator: Evaluator) -> Trajectory:
    """Play one episode and print it; returns what was played."""
    options: dict[str, Any] = {
        "language": scene.language,
        "evaluator": evaluator,
        "stop_when": scene.stop_when,
    }
    if scene.suite is not None:
        options |= {"suite": scene.suite, "level": None}
    if scene.language == "cpp":
        options["reward"] = "stage3"  # speed counts, too
    env = make_env(scene.env_id, **options)
    env.reset(options={"problem_id": scene.problem_id})
    problem = episode_of(env).problem
    print_text("")
    print_heading(f"{problem_title(problem)}: {scene.language} on {evaluator.device}")
    print_source(problem.source)
    drafts = ScriptedAgent(scene.drafts)
    return play_episode(env, drafts.answer)
