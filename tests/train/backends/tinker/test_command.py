"""`kernelgym-train --backend tinker` against a service in this process."""

from __future__ import annotations

import asyncio
import importlib.util
import json

import pytest

from kernelgym import UsageError
from kernelgym_train.backends.tinker.service import ServiceTimeout
from kernelgym_train.backends.tinker.spending import Spending
from kernelgym_train.cli import main
from support import fake_tinker, tiny
from support.fake_tinker import FakeSampler, Store, served_by

SMALL = (
    *("--backend", "tinker", "env.suite=Synthetic", "env.split=rl", "env.levels=[1]"),
    *("env.ruleset=kernelbench", "env.examples=zero_shot", "evaluation.split=heldout"),
    *("env.max_turns=2", "evaluation.limit=3", "evaluation.samples=2", "evaluation.pass_at=[1,2]"),
    *("evaluation.every=2", "sampling.problems_per_step=2", "sampling.group_size=3"),
    *("sampling.max_new_tokens=6", "sampling.max_prompt_tokens=4000", "sampling.refill_rounds=0"),
    *("optimiser.steps=2", "model.lora_rank=4", "run.save_every=1", "logging.tensorboard=false"),
    *("tinker.base_url=http://127.0.0.1:9", "sampling.at_once=4"),
)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """Return a folder with the tiny model's tokenizer and shape."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    words = tiny.tokenizer()
    tiny.model(len(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture
def served(monkeypatch, model_folder):
    """Have a store stand for the server at any address; returns it and its connections."""
    store = Store()
    return store, served_by(monkeypatch, store, model_folder)


def rows(path):
    """Return a log's rows."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_run_is_trained_resumed_and_evaluated(tmp_path, model_folder, served, capsys):
    store, made = served
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    assert main(given) == 0
    run = tmp_path / "one"
    assert capsys.readouterr().out.strip() == str(run)
    assert [row["batch"] for row in rows(run / "checkpoints.jsonl")] == [1, 2]
    (tested,) = rows(run / "evaluations.jsonl")
    assert tested["step"] == 2 and "greedy/pass@1" in tested
    assert rows(run / "checkpoints.jsonl")[-1]["score"] == tested["eval/pass@1"]
    assert all(row["policy/in_flight_max"] <= 4 for row in rows(run / "metrics.jsonl"))
    kept = json.loads((run / "model" / "tinker.json").read_text())
    assert kept["sampler_path"] == rows(run / "checkpoints.jsonl")[-1]["sampler_path"]
    assert json.loads((run / "manifest.json").read_text())["backend"] == "tinker"

    assert main(["--resume", str(run), "optimiser.steps=3"]) == 0
    assert [row["step"] for row in rows(run / "metrics.jsonl")] == [0, 1, 2]
    assert len(store.created) == 1 and len(store.restored) == 1
    capsys.readouterr()
    assert main(["--evaluate", str(run)]) == 0
    assert "eval/pass@1 " in capsys.readouterr().out
    assert rows(run / "evaluations.jsonl")[-1]["step"] == 3
    assert main(["--evaluate", str(run), "--step", "1"]) == 0
    last = rows(run / "evaluations.jsonl")[-1]
    assert last["step"] == 1 and last["checkpoint"].endswith("step-000001")
    capsys.readouterr()
    assert main(["--merge", str(run)]) == 2
    assert "no adapter" in capsys.readouterr().err
    assert [service.closed for service in made] == [1, 1, 1, 1]
    assert not [path for path in tmp_path.rglob("*") if b"tml-of-a-test" in read(path)]


def read(path):
    """Return a file's bytes; none of a folder."""
    return path.read_bytes() if path.is_file() else b""


def test_dry_run_makes_nothing(tmp_path, model_folder, served, capsys):
    _, made = served
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}"]
    assert main(["--dry-run", *given]) == 0
    out = capsys.readouterr().out
    assert "server      http://127.0.0.1:9, reached" in out and "adapter of rank 4" in out
    assert "key         TINKER_API_KEY" in out and "tml-" not in out
    assert "problems    " in out and "context     4096" in out and "peak" not in out
    assert list(tmp_path.iterdir()) == [] and made == []


def test_tokenizer_named_apart_is_taken(tmp_path, model_folder, served, capsys, monkeypatch):
    from kernelgym_train.backends.tinker import backend
    from kernelgym_train.backends.tinker.server_probe import ServedModel

    models = (ServedModel("Only/There", 4096),)
    monkeypatch.setattr(backend, "reach", lambda url, key: models)
    given = ["--dry-run", *SMALL, "model.id=Only/There", f"run.folder={tmp_path}"]
    assert main([*given, f"model.tokenizer={model_folder}"]) == 0
    assert "model       Only/There" in capsys.readouterr().out
    assert main([*given, f"model.tokenizer={tmp_path}"]) == 2
    assert f"model.tokenizer={str(tmp_path)!r} cannot be loaded" in capsys.readouterr().err


def test_resume_on_a_server_without_the_run_fails(tmp_path, model_folder, served, capsys):
    store, _ = served
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    assert main([*given, "evaluation.every=0"]) == 0
    run = tmp_path / "one"
    before = {path: read(path) for path in run.glob("*.jsonl") if path.name != "events.jsonl"}
    store.kept.clear()
    capsys.readouterr()
    assert main(["--resume", str(run), "optimiser.steps=3"]) == 2
    assert "has no tinker://" in capsys.readouterr().err
    assert {path: read(path) for path in before} == before
    assert main(["--evaluate", str(run)]) == 2
    assert "has no tinker://" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["tinker.base_url=nowhere"], "is not an address of a server"),
        (["model.id=Qwen/Other"], "is not served at"),
        (["optimiser.loss=dapo"], "unknown loss of backend tinker"),
        (["model.lora_rank=0"], "model.lora_rank=0"),
        (["sampling.max_prompt_tokens=10"], "above sampling.max_prompt_tokens"),
        (["sampling.at_once=0"], "sampling.at_once must be above 0"),
        (["tinker.step_timeout_s=0"], "tinker.step_timeout_s must be above 0"),
    ],
)
def test_fault_in_one_line_makes_nothing(settings, said, tmp_path, model_folder, served, capsys):
    _, made = served
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", *settings]
    assert main(given) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == [] and made == []


@pytest.mark.parametrize(
    ("key", "said"),
    [("", "there is no key for a Tinker service"), ("sk-of-another", "has a wrong form")],
)
def test_run_without_a_key_is_refused(
    key, said, tmp_path, model_folder, served, capsys, monkeypatch
):
    _, made = served
    monkeypatch.setenv("TINKER_API_KEY", key)
    monkeypatch.setenv("HOME", str(tmp_path))
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}"]
    assert main([*given, "tinker.base_url=https://service.example"]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and "sk-of-another" not in err
    assert list(tmp_path.iterdir()) == [] and made == []


def test_run_begins_with_weights_of_another(tmp_path, model_folder, served, capsys, monkeypatch):
    from kernelgym_train.backends.tinker import backend
    from kernelgym_train.backends.tinker.server_probe import KeptWeights

    store, _ = served
    model = str(model_folder.resolve())
    told = {"path": "tinker://run-0/weights/a", "base_model": model, "rank": 4}
    monkeypatch.setattr(backend, "find_weights", lambda url, key, path: KeptWeights(**told))
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "evaluation.every=0"]
    given.append(f"load_checkpoint_path={told['path']}")
    for name, other in (("base_model", "Qwen/Other"), ("rank", 8)):
        with monkeypatch.context() as patch:
            patch.setitem(told, name, other)
            assert main(given) == 2
        assert f"{other}, and model." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["--dry-run", *given]) == 0
    assert f"weights     begin with {told['path']}" in capsys.readouterr().out
    momentum = [3.0] * 9
    store.kept[told["path"]] = ([0.5] * 8 + [-1.0], momentum)
    assert main([*given, "run.name=one", "optimiser.steps=1"]) == 0
    assert (store.created, store.restored) == ([], [told["path"]])
    assert store.began == [fake_tinker.fresh()[1]], "the optimiser begins anew"
    ((rows_sent, _),) = store.updates
    assert all(row.logprobs[-1] < -2.0 for row in rows_sent if row.targets[-1] == fake_tinker.END)


def test_run_resumes_once_its_start_is_gone(tmp_path, model_folder, kept, monkeypatch):
    from kernelgym_train.backends.tinker import backend

    start = "tinker://run-0/weights/a"
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    given += ["evaluation.every=0", f"tinker.start_from={start}"]
    assert main([*given, "optimiser.steps=1"]) == 0

    def gone(url, key, path):
        raise UsageError(f"the Tinker server at {url} has no {path}")

    monkeypatch.setattr(backend, "find_weights", gone)
    del kept.kept[start]
    assert main(["--resume", str(tmp_path / "one"), "optimiser.steps=2"]) == 0
    assert len(kept.restored) == 2 and kept.restored[1] != start
    assert main([*given, "run.name=two"]) == 2, "a new run needs them"


@pytest.fixture
def kept(served, model_folder, monkeypatch):
    """Have the server keep weights of rank 4; returns its store."""
    from kernelgym_train.backends.tinker import backend
    from kernelgym_train.backends.tinker.server_probe import KeptWeights

    store, _ = served
    for path in ("tinker://run-0/weights/a", "tinker://run-0/a"):
        store.kept[path] = ([0.5] * 8 + [-1.0], [3.0] * 9)
    told = KeptWeights("tinker://run-0/weights/a", str(model_folder.resolve()), 4)
    monkeypatch.setattr(backend, "find_weights", lambda url, key, path: told)
    return store


@pytest.mark.parametrize(
    ("what", "restored"),
    [
        ("untrained", []),
        ("tinker://run-0/sampler_weights/a", []),
        ("tinker://run-0/a", []),
        ("tinker://run-0/weights/a", ["tinker://run-0/weights/a"]),
    ],
)
def test_model_without_a_run_is_evaluated(what, restored, tmp_path, model_folder, kept, capsys):
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    given += ["model.lora_rank=8", "evaluation.greedy=false"]  # the weights tell their own
    assert main(["--evaluate", what, *given]) == 0
    said = capsys.readouterr()
    assert "eval/pass@1 " in said.out and f"is kept in '{tmp_path}/one'" in said.err
    (row,) = rows(tmp_path / "one" / "evaluations.jsonl")
    assert row["step"] == 0 and f"{row['eval/pass@1']:.4f}" in said.out
    assert rows(tmp_path / "one" / "events.jsonl")[-1]["event"] == "evaluated"
    assert (kept.created, kept.restored, kept.updates) == ([], restored, [])
    assert main(["--evaluate", what, *given]) == 2
    assert "there is a run in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "more", "said"),
    [
        ("tinker://run-1/sampler_weights/b", [], "has no tinker://run-1"),
        ("tinker://run", [], "--evaluate tinker://run is not an address of weights"),
        ("untrained", ["tinker.start_from=tinker://run-0/weights/a"], "evaluate them by --evaluat"),
    ],
)
def test_model_that_is_not_there_is_told(
    what, more, said, tmp_path, model_folder, kept, capsys, monkeypatch
):
    """Before a folder is made, problems are sized and a judge is started: that takes seconds."""
    from kernelgym_train.launch import launch

    monkeypatch.setattr(launch, "_create", lambda config: pytest.fail("it made a folder"))
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", *more]
    assert main(["--evaluate", what, *given]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == []


def test_samples_need_not_divide_by_micro_batches():
    fake_tinker.config("sampling.problems_per_step=1", "sampling.group_size=3", "env.max_turns=3")


def test_cap_that_is_reached_is_a_failure(tmp_path, model_folder, served, capsys, monkeypatch):
    # 12 answers of a step: 48,000 tokens of prompts, 72 sampled, 48,072 learned from.
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    assert main(["--dry-run", *given]) == 0
    out = capsys.readouterr().out
    assert "cost        a step takes at most 0.0961 million tokens" in out
    assert main([*given, "tinker.most_tokens=96143"]) == 2
    assert "below the 96144 tokens that one step may take" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Spending, "over", property(lambda own: "all" if own.spent.train else ""))
    assert main([*given, "tinker.most_tokens=96144"]) == 1
    assert "stopped after 1 steps: all" in capsys.readouterr().err
    assert len(rows(tmp_path / "one" / "checkpoints.jsonl")) == 1


def test_key_is_in_nothing_a_run_leaves(tmp_path, model_folder, served, capfd, monkeypatch):
    """Neither from the variable nor from a file, in files, output, arguments or the judge's."""
    import os
    import sys

    from kernelgym.judge.environment import COMPILER, TRUSTED, ZYGOTE, kept_variables

    key = "tml-planted-51f8"
    folder = tmp_path / "work"
    folder.mkdir()
    given = [*SMALL, f"model.id={model_folder}", "evaluation.every=0", "optimiser.steps=1"]
    monkeypatch.chdir(folder)
    for name in ("variable", "file"):
        monkeypatch.setenv("TINKER_API_KEY", key if name == "variable" else "")
        if name == "file":
            (folder / ".env").write_text(f"TINKER_API_KEY={key}\n")
        assert main(["-v", *given, f"run.name={name}"]) == 0
        assert main(["-v", *given, f"run.name={name}"]) == 2, "there is such a run: a traceback"
        for allowed in (TRUSTED, ZYGOTE, COMPILER):
            assert key not in kept_variables(allowed).values()
    assert os.environ["TINKER_API_KEY"] == "" and key not in " ".join(sys.argv)
    said = capfd.readouterr()
    assert "Traceback" in said.err and key not in said.out + said.err
    (folder / ".env").unlink()
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert len(left) > 10 and not [path for path in left if key.encode() in read(path)]


def test_several_processes_are_refused(tmp_path, model_folder, served, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}"]
    assert main(given) == 2
    assert "2 processes were started" in capsys.readouterr().err


def test_snapshot_that_failed_to_open_is_opened_again():
    from kernelgym_train.backends.tinker.policy import OpenedLater

    made = []

    async def make():
        made.append(1)
        if len(made) == 1:
            raise ServiceTimeout("no sampler")
        return FakeSampler(fake_tinker.fresh()[0])

    async def play():
        later = OpenedLater(make)
        asked = {"max_tokens": 2, "temperature": 1.0, "top_p": 1.0, "stop": (), "limit_s": 1.0}
        first = await asyncio.gather(
            *(later.sample((1,), seed=seed, **asked) for seed in range(3)), return_exceptions=True
        )
        assert all(isinstance(each, ServiceTimeout) for each in first)
        return await asyncio.gather(*(later.sample((1,), seed=seed, **asked) for seed in range(3)))

    assert len(asyncio.run(play())) == 3 and len(made) == 2


def test_run_is_not_resumed_by_another_backend(tmp_path, model_folder, served, capsys):
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}", "run.name=one"]
    assert main([*given, "evaluation.every=0", "optimiser.steps=1"]) == 0
    capsys.readouterr()
    assert main(["--resume", str(tmp_path / "one"), "--backend", "trl"]) == 2
    assert "was made with backend 'tinker'" in capsys.readouterr().err


def test_missing_sdk_is_told_with_the_extra(tmp_path, model_folder, served, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tinker" else find(name)
    )
    given = [*SMALL, f"model.id={model_folder}", f"run.folder={tmp_path}"]
    assert main(given) == 2
    assert "pip install 'kernelgym[tinker]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
