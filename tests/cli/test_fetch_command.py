"""`kernelgym fetch`: pretrained models from a hub on this machine, into kernelgym's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym.pretrained import held, missing_models, models_folder
from support.fake_hub import FakeHub, serve_hub
from support.pretrained_models import problem

CONFIG = b'{"model_type": "gpt2", "vocab_size": 7}'
SAFE = {
    "config.json": CONFIG,
    "model.safetensors": b"s" * 3000,
    "pytorch_model.bin": b"p" * 4000,
    "onnx/model.onnx": b"o",
    "flax_model.msgpack": b"f",
    "README.md": b"r",
}
PICKLED = {"config.json": CONFIG, "pytorch_model.bin": b"p" * 4000, "tf_model.h5": b"t"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path / "cache"))
    models = {"owner/safe": SAFE, "pickled": PICKLED, "owner/flax": {"flax_model.msgpack": b"f"}}
    with serve_hub(models) as served:
        yield served


def fetch(hub: FakeHub, folder: Path, **models: str) -> tuple[int, str, str]:
    """Run the command on one problem file for each model; return code, output and errors."""
    folder.mkdir(exist_ok=True)
    for name, model in models.items():
        (folder / f"{name}.py").write_text(problem(model).source)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    done = subprocess.run(
        [sys.executable, "-m", "kernelgym", "fetch", str(folder)],
        env={**environment, "HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_fetch_brings_weights_of_one_format_at_the_hubs_revision_once(
    hub: FakeHub, tmp_path: Path
) -> None:
    code, out, err = fetch(hub, tmp_path / "problems", a="owner/safe", b="pickled")
    assert code == 0, err
    safe, pickled = held("owner/safe"), held("pickled")
    assert safe is not None and pickled is not None
    assert (safe.revision, safe.weight_bytes) == (hub.revision("owner/safe"), 3000)
    assert {file.name for file in safe.folder.iterdir()} == {"config.json", "model.safetensors"}
    assert {f.name for f in pickled.folder.iterdir()} == {"config.json", "pytorch_model.bin"}
    assert (safe.folder / "model.safetensors").read_bytes() == SAFE["model.safetensors"]
    assert safe.revision[:12] in out and "fetched" in out and str(models_folder()) in out
    hub.asked.clear()
    code, out, _ = fetch(hub, tmp_path / "problems")
    assert (code, hub.asked) == (0, []) and "was here" in out


def test_fetch_of_a_model_without_torch_weights_says_what_it_has(
    hub: FakeHub, tmp_path: Path
) -> None:
    code, _, err = fetch(hub, tmp_path / "problems", a="owner/flax")
    assert code == 2 and "has no PyTorch weights on the hub" in err and "flax_model" in err
    assert len(err.strip().splitlines()) == 1


def test_fetch_of_several_models_goes_on_after_a_failure(hub: FakeHub, tmp_path: Path) -> None:
    code, out, _ = fetch(hub, tmp_path / "problems", a="owner/unknown", b="pickled")
    assert code == 1 and "does not give model" in out.replace("\n", " ")
    assert held("pickled") is not None and missing_models(problem("owner/unknown"))


def test_show_and_ls_of_own_problems_name_a_command_that_fetch_takes(run, tmp_path: Path) -> None:
    file = tmp_path / "problems" / "gone.py"
    file.parent.mkdir()
    file.write_text(problem("owner/gone").source)
    _, shown, _ = run("show", str(file))
    _, listed, _ = run("ls", "--suite", str(file.parent))
    for out, target in ((shown, file), (listed, file.parent)):
        assert f"`kernelgym fetch {target}` downloads" in " ".join(out.split())


def test_fetch_of_problems_without_models_says_so(run) -> None:
    code, out, _ = run("fetch", "Synthetic/L1/2")
    assert code == 0 and "none of the 1 problems loads a pretrained model" in out
