"""The ready configuration with retrieval, trained for a few steps of a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelgym import read_records
from kernelgym.cli import main as command_line
from kernelgym.retrieval.synthetic import synthetic_index
from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.cli import main
from kernelgym_train.launch import launch
from support import tiny

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SHORTER = (
    *("env.ruleset=kernelbench", "optimiser.steps=3"),
    *("sampling.problems_per_step=2", "sampling.group_size=4"),
    *("sampling.max_new_tokens=8", "evaluation.every=3", "evaluation.limit=3"),
    *("evaluation.samples=1", "evaluation.pass_at=[1]", "run.save_every=2"),
    *("optimiser.micro_batch=4", "logging.live=false", "logging.tensorboard=false"),
    *("optimiser.learning_rate=0.01", "run.folder=runs", "run.seed=3"),
)


def test_raicl_synthetic_trains_a_tiny_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        launch, "run_evaluator", lambda config, **_: ScriptedEvaluator(tiny.judge, config.rules)
    )
    words = tiny.tokenizer()
    model = tiny.model(len(words))
    model.config.max_position_embeddings = 1024
    model.save_pretrained("runs/raicl/start")
    words.save_pretrained("runs/raicl/start")
    synthetic_index("triton", "cpu").save("indexes/synthetic")
    assert main(["--config", "raicl_synthetic", *SHORTER, "run.name=short"]) == 0
    run = tmp_path / "runs" / "short"
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == [0, 1, 2]
    assert all(row["retrieval/examples"] > 0 < row["retrieval/tokens"] for row in metrics)
    assert any(row["train/grad_norm"] > 0 for row in metrics)
    records = list(read_records(run / "trajectories.jsonl"))
    shown = [turn for record in records for turn in record.retrieved]
    assert any(shown) and all(len(turn) <= 2 for turn in shown)
    evaluated = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert "without_retrieval/pass@1" in json.dumps(evaluated)
    command = ["export", str(run / "trajectories.jsonl"), "--format", "sft", "--wrong", "--untidy"]
    command += ["--tokenizer", "runs/raicl/start", "--out", str(tmp_path / "rows.jsonl")]
    assert command_line(command) == 0, capsys.readouterr().err
    assert "# Solved problems that resemble yours" in (tmp_path / "rows.jsonl").read_text()
