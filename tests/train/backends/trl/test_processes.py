"""Several processes that train together: each plays its share, and all learn from everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgym import read_records
from kernelgym.indexing.growing import RecordedArchives
from kernelgym.retrieval.index import Index
from kernelgym.retrieval.synthetic import synthetic_index
from kernelgym_train.credit.credit import assign_credit
from kernelgym_train.types import Completion, Key, Rollout
from support import tiny

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SCRIPT = """
import sys, torch
sys.path.insert(0, {tests!r})
torch.set_num_threads(1)
from support import tiny
from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.launch import launch
launch.run_evaluator = lambda config, **_: ScriptedEvaluator(
    tiny.judge, ruleset="kernelbench")
from kernelgym_train.cli import main
sys.exit(main(sys.argv[1:]))
"""


WATCHED = """
import json, os
from pathlib import Path
from kernelgym.prompts.observer import render
from kernelgym.suites.synthetic import SyntheticSuite
from kernelgym_train.run.steps import Steps
asked, plain = SyntheticSuite().problems(1, split="rl")[:8], Steps.play
async def play(self, step, *given, **named):
    observer = self.archive.observer(self.observer)
    read = [render(observer.observe(problem)) for problem in asked]
    line = json.dumps([step, self.archive.state(), [observer.retrieved(p) for p in asked], read])
    with Path(__file__).with_name("rank" + os.environ["RANK"]).open("a") as file:
        file.write(line + chr(10))
    return await plain(self, step, *given, **named)
Steps.play = play
"""


def in_two_processes(script: Path, settings: list[str]) -> None:
    """Run a training script with two processes that speak by gloo."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    done = subprocess.run(
        [*command, str(script), *settings],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_two_processes_show_the_same_archive(tmp_path: Path) -> None:
    words = tiny.tokenizer()
    tiny.model(len(words)).save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    blocks = [
        e for e in synthetic_index("triton", "cpu").entries if e.id.startswith("Synthetic/L3/")
    ]
    Index.from_entries(blocks[:4]).save(tmp_path / "index")
    head, tail = SCRIPT.format(tests=str(Path(tiny.__file__).parents[1])).split(
        "from kernelgym_train.cli"
    )
    (tmp_path / "train.py").write_text(f"{head}{WATCHED}from kernelgym_train.cli{tail}")
    given = [each for each in tiny.SETTINGS if not each.startswith("env.suite")]
    given += ["env.suite=Synthetic", "env.levels=[1]", "env.split=rl", f"run.folder={tmp_path}"]
    given += [f"model.id={tmp_path / 'model'}", "run.name=run", "optimiser.steps=3"]
    given += ["sampling.max_prompt_tokens=4000", f"retrieval.index={tmp_path / 'index'}"]
    given += ["retrieval.archive=true", "retrieval.tokens=1500", "retrieval.least=-1"]
    given += ["evaluation.split=heldout"]
    in_two_processes(tmp_path / "train.py", given)
    ranks = [
        [json.loads(line) for line in (tmp_path / f"rank{rank}").read_text().splitlines()]
        for rank in (0, 1)
    ]
    assert ranks[0] == ranks[1] and [row[0] for row in ranks[0]] == [0, 1, 2]
    digests = [row[1]["digest"] for row in ranks[0]]
    assert len(set(digests)) == 3, "both found something new in each step"
    run = tmp_path / "run"
    archives = RecordedArchives(run / "trajectories.jsonl")
    assert [archives.at(step) for step in range(3)] == digests
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert metrics[0]["retrieval/archive"] == 0.0 < metrics[2]["retrieval/archive"]
    records = list(read_records(run / "trajectories.jsonl"))
    assert {int(record.key.split("/")[1]) % 2 for record in records} == {0, 1}
    shown = {each for record in records for turn in record.retrieved for each in turn}
    assert shown - {entry.id for entry in blocks}, "prompts of later steps show what the run found"


def test_the_gradient_of_two_processes_is_that_of_credits_loss(tmp_path: Path) -> None:
    import torch

    words = tiny.tokenizer()
    model = tiny.model(len(words))
    model.save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    (tmp_path / "train.py").write_text(SCRIPT.format(tests=str(Path(tiny.__file__).parents[1])))
    given = [each for each in tiny.SETTINGS if not each.startswith("env.suite")]
    given += ["env.suite=Synthetic", "env.split=rl", f"model.id={tmp_path / 'model'}"]
    given += [f"run.folder={tmp_path}", "run.name=run", "optimiser.steps=1"]
    given += ["optimiser.max_grad_norm=1e9", "sampling.refill_rounds=1"]
    given += ["sampling.max_prompt_tokens=4000"]
    in_two_processes(tmp_path / "train.py", given)
    run = tmp_path / "run"
    (metrics,) = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    tokens = {
        tuple(row["key"]): row
        for row in map(json.loads, (run / "tokens.jsonl").read_text().splitlines())
    }
    rollouts = []
    for record in read_records(run / "trajectories.jsonl"):
        key = Key(*map(int, record.key.split("/")))
        answers = tuple(
            Completion(
                turn.action,
                tuple(row["prompt_ids"]),
                tuple(row["ids"]),
                None,
                row["finish"],
                row["policy_version"],
            )
            for turn in record.trajectory.turns
            for row in [tokens[(*key[:3], turn.index)]]
        )
        rollouts.append(Rollout(key, record.trajectory, answers))
    assert {rollout.key.problem % 2 for rollout in rollouts} == {0, 1}
    samples = assign_credit(rollouts, tiny.config().credit_rule).samples
    assert len({sample.key.problem % 2 for sample in samples}) == 2, "both had something to teach"
    for sample in samples:
        ids = torch.tensor([[*sample.prompt_ids, *sample.ids]])
        logits = model(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1]
        logp = logits.log_softmax(-1).gather(1, torch.tensor(sample.ids)[:, None])
        (-sample.weight * sample.advantage * logp.sum()).backward()
    norm = float(torch.cat([w.grad.flatten() for w in model.parameters()]).norm())
    assert metrics["train/grad_norm"] == pytest.approx(norm, rel=1e-4)
