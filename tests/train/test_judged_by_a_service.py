"""`judge.url`: a verdict service judges a run, and its restarts change nothing."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernelgym_train.cli import main
from support import tiny
from support.serve_process import serving

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = (
    *("env.suite=Synthetic", "env.split=rl", "env.levels=[1]", "env.max_turns=2"),
    *("env.examples=zero_shot", "evaluation.every=0", "sampling.problems_per_step=2"),
    *("sampling.group_size=2", "sampling.max_new_tokens=6", "sampling.max_prompt_tokens=4000"),
    *("sampling.refill_rounds=0", "optimiser.micro_batch=4", "model.lora_rank=4"),
    *("model.device=cpu", "model.gradient_checkpointing=false"),
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    words = tiny.tokenizer()
    tiny.model(len(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    return (*SETTINGS, f"model.id={folder}", f"run.folder={folder.parent}")


def rewards(run: Path) -> list[Any]:
    text = (run / "trajectories.jsonl").read_text()
    turns = [turn for line in text.splitlines() for turn in json.loads(line)["turns"]]
    return [(turn["verdict"]["status"], turn["score"]) for turn in turns]


@pytest.mark.slow
def test_run_whose_service_is_killed_and_restarted_has_the_same_rewards(
    tmp_path, settings, monkeypatch
) -> None:
    monkeypatch.setenv("SERVE_PROCESS_TINY", "1")
    folder = Path(settings[-1].partition("=")[2])

    def train(name: str, url: str) -> list[Any]:
        steps = ("optimiser.steps=3", f"judge.url={url}", f"run.name={name}")
        assert main(["--backend", "trl", *settings, *steps]) == 0
        return rewards(folder / name)

    with serving(tmp_path / "a") as (_, url):
        whole = train("whole", url)
    with contextlib.ExitStack() as stack:
        process, url = stack.enter_context(serving(tmp_path / "b", 0.2))

        def restart() -> None:
            log = folder / "killed" / "metrics.jsonl"
            while not (log.exists() and log.read_text()):
                time.sleep(0.02)
            process.kill()
            process.wait()
            time.sleep(1.0)
            stack.enter_context(serving(tmp_path / "b", 0.0, int(url.rpartition(":")[2])))

        restarting = threading.Thread(target=restart)
        restarting.start()
        killed = train("killed", url)
        restarting.join()
    assert killed == whole and len(whole) == 24


def test_service_that_judges_otherwise_is_refused_before_the_run_begins(
    tmp_path, settings, capsys
) -> None:
    with serving(tmp_path / "a") as (_, url):
        for setting, told in (
            (f"judge.url={url}", "judge.device=cuda:0, and http"),
            ("judge.url=judge:8765", "is not an address of a verdict service"),
        ):
            given = (*settings, "run.name=other", "judge.device=cuda:0", setting)
            assert main(["--backend", "trl", *given]) == 2
            assert told in capsys.readouterr().err
