"""Tests of which device files belong to the GPUs on which a kernel is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym.judge.sandbox.paths import other_gpus
from kernelgym.judge.untrusted.sandbox import sandbox
from kernelgym.judge.untrusted.sandbox.sandbox import SandboxPlan

UUIDS = ("c2a515d4-752b-eac9-d211-7f66bc11deee", "4cd24410-a7e1-2f0e-2e21-1f8ea1e02552")
NODES = ("nvidia0", "nvidia3", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-caps")


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """Return the folders of a made-up machine: the driver's descriptions, and the device files.

    Its GPUs have the device files 3 and 11; the driver does not describe device file 0.
    """
    proc, dev = tmp_path / "gpus", tmp_path / "dev"
    for number, (uuid, minor) in enumerate(zip(UUIDS, (3, 11), strict=True)):
        folder = proc / f"0000:00:0{number}.0"
        folder.mkdir(parents=True)
        text = f"Model: \t\t NVIDIA\nGPU UUID: \t GPU-{uuid}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text, encoding="utf-8")
    dev.mkdir()
    for name in NODES:
        (dev / name).touch()
    return proc, dev


@pytest.mark.parametrize(("uuid", "own"), list(zip(UUIDS, ("nvidia3", "nvidia11"), strict=True)))
def test_other_gpus_of_a_known_gpu_are_all_numbered_device_files_but_its_own(
    machine: tuple[Path, Path], uuid: str, own: str
) -> None:
    proc, dev = machine
    there = {str(dev / name) for name in NODES[:3]}
    assert set(other_gpus(uuid, proc, dev)) == there - {str(dev / own)}


def test_other_gpus_of_a_gpu_that_the_driver_does_not_describe_are_none(
    machine: tuple[Path, Path],
) -> None:
    proc, dev = machine
    assert other_gpus("00000000-0000-0000-0000-000000000000", proc, dev) == ()
    (dev / "nvidia3").unlink()  # as in a container that names device files differently
    assert other_gpus(UUIDS[0], proc, dev) == ()


def test_other_gpus_are_found_where_a_description_cannot_be_read(
    machine: tuple[Path, Path],
) -> None:
    proc, dev = machine
    unreadable = proc / "0000:00:00.0" / "information"
    unreadable.unlink()
    unreadable.mkdir()
    assert other_gpus(UUIDS[1], proc, dev) == (str(dev / "nvidia0"), str(dev / "nvidia3"))


def test_sandbox_on_a_gpu_opens_no_hidden_device_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.os, "listdir", lambda _: [*NODES, "sda"])
    plan = SandboxPlan("limits", "", (), (), 0, 1, 64, 256, gpu=True)
    nvidia = {f"/dev/{name}" for name in NODES}
    assert nvidia <= set(sandbox._devices(plan))
    plan = SandboxPlan("limits", "", (), (), 0, 1, 64, 256, gpu=True, hidden=("/dev/nvidia3",))
    assert nvidia - set(sandbox._devices(plan)) == {"/dev/nvidia3"}
