"""tinker-cookbook's own trainer on our episodes, and its reader on our run's folder.

Needs tinker-cookbook and a third party's Tinker server: `make test-cookbook`.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from support import fake_tinker
from support.fake_tinker import Store
from support.tinker_server import ROOT, running

pytestmark = pytest.mark.cookbook

PREPARED = ROOT / "runs" / "prepared"
ITERATIONS = 2


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    pytest.importorskip("tinker_cookbook")
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")


@pytest.fixture
def server(tmp_path):
    """Return a server of the demonstration's warm-started model."""
    if not (PREPARED / "start" / "prepared.json").is_file():
        pytest.skip(f"needs {PREPARED}, which `make test-cookbook` prepares")
    with running(PREPARED / "start", tmp_path / "server") as found:
        yield found


def test_cookbook_trains_on_our_episodes(server, tmp_path):
    from tinker_cookbook.rl.train import Config, main

    from kernelgym_train.adapters.cookbook import EpisodeDatasetBuilder

    problems, model = PREPARED / "problems", PREPARED / "start"
    built = EpisodeDatasetBuilder(
        config="tinker_synthetic",
        settings=(
            *(f"model.id={model}", f"env.suite={problems / 'practice'}", "evaluation.every=0"),
            *(f"optimiser.steps={ITERATIONS}", "env.max_turns=1", "sampling.problems_per_step=4"),
        ),
    )
    config = Config(
        learning_rate=5e-3,
        dataset_builder=built,
        model_name=str(model),
        recipe_name="kernelgym",
        max_tokens=75,
        lora_rank=16,
        log_path=str(tmp_path / "log"),
        base_url=server.url,
        eval_every=0,
        save_every=1,
    )
    asyncio.run(main(config))
    rows = [json.loads(line) for line in (tmp_path / "log/metrics.jsonl").read_text().splitlines()]
    right = [row["env/all/correct"] for row in rows if "env/all/correct" in row]
    assert len(right) == ITERATIONS and all(0.0 < each < 1.0 for each in right), rows


def test_cookbook_finds_our_last_checkpoint(tmp_path):
    from tinker_cookbook.checkpoint_utils import get_last_checkpoint

    store = Store()
    outcome, _, _ = fake_tinker.run(tmp_path / "run", fake_tinker.config("run.save_every=2"), store)
    found = get_last_checkpoint(str(tmp_path / "run"))
    assert found.batch == outcome.steps == 5
    assert found.state_path in store.kept and found.sampler_path
