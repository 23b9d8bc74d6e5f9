"""Devices that a search refuses before it judges anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym import UsageError
from kernelgym.devices import CudaDevice
from kernelgym_train.mcgs import device_checks
from kernelgym_train.mcgs.device_checks import check_devices, check_idle
from kernelgym_train.mcgs.task import task_of_spec
from support.specs import GLOBAL_SPEC, changed, written

GPU = CudaDevice("NVIDIA H100", 80 << 30, (9, 0))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("kernelgym.devices", "kernelgym_train.mcgs.device_checks"):
        monkeypatch.setattr(f"{module}.cuda_devices", lambda: (GPU, GPU))
    monkeypatch.setattr(device_checks, "_used", lambda device: 0)
    monkeypatch.setattr(device_checks, "memory_budget", lambda *_: 1 << 40)


def checked(folder: Path, *flags: str, ncu_every: int = 0) -> None:
    spec = changed(GLOBAL_SPEC, launch__flags=list(flags))
    check_devices(task_of_spec(written(folder, spec)), ["cuda:0", "cuda:1"], ncu_every)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("flags", "fits"),
    [
        (["-arch=sm_90"], True),
        (["-arch=sm_90a"], True),
        (["-arch=sm_80"], False),
        (["-gencode=arch=compute_80,code=sm_80"], True),
        (["-gencode=arch=compute_100a,code=sm_100a"], False),
        (["-O3", "-maxrregcount=64"], True),
    ],
)
def test_spec_built_for_other_gpus_is_refused(flags: list[str], fits: bool, tmp_path: Path) -> None:
    if fits:
        checked(tmp_path, *flags)
        return
    with pytest.raises(UsageError, match="NVIDIA H100 is sm_90; leave the architecture out"):
        checked(tmp_path, *flags)


@pytest.mark.usefixtures("gpu")
def test_counters_that_cannot_be_read_are_refused_before_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = tmp_path / "params"
    monkeypatch.setattr(device_checks, "_PARAMETERS", parameters)
    monkeypatch.setattr(device_checks, "find_ncu", lambda: "")
    with pytest.raises(UsageError, match="ncu_every=5: ncu is not on the PATH; give 0"):
        checked(tmp_path, ncu_every=5)
    monkeypatch.setattr(device_checks, "find_ncu", lambda: "/bin/ncu")
    checked(tmp_path, ncu_every=5)
    parameters.write_text("Mobile: 4294967295\nRmProfilingAdminOnly: 1\n")
    with pytest.raises(UsageError, match=r"ncu_every=5: .*only administrators.*; give 0"):
        checked(tmp_path, ncu_every=5)
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    checked(tmp_path, ncu_every=5)


@pytest.mark.parametrize("samples", [[90, 5], [0], [None], [90, 90, 3]])
def test_gpu_that_is_idle_once_is_taken(samples: list[int | None]) -> None:
    left = iter(samples)
    check_idle("cuda:1", lambda device: next(left), lambda seconds: None)
    assert next(left, "end") == "end"


def test_gpu_that_others_keep_busy_is_refused() -> None:
    waited: list[float] = []
    left = iter([99, 85, 90])
    with pytest.raises(UsageError, match=r"cuda:1 is busy: .* 85 % of the time; .*gpus="):
        check_idle("cuda:1", lambda device: next(left), waited.append)
    assert len(waited) == 2
