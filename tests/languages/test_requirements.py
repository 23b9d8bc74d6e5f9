"""What a language needs on this machine is checked, and told in one line, before anything runs."""

from __future__ import annotations

import dataclasses
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kernelgym import devices
from kernelgym.devices import CudaDevice
from kernelgym.errors import UnsupportedLanguage
from kernelgym.judge.compiling import requirements
from kernelgym.judge.compiling.requirements import check_requirements, header_paths
from kernelgym.languages import LANGUAGES, HeaderRoot, Language, Package, check_language

TILES = HeaderRoot("TILES_ROOT", "include/tiles.cuh", ("include",), "https://example.org/tiles")


def language(**fields: object) -> Language:
    return dataclasses.replace(LANGUAGES["cpp"], name="tiles", tools=(), **fields)  # type: ignore[arg-type]


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(requirements, "version", version)


@pytest.mark.parametrize(
    ("installed", "complaint"),
    [
        (None, "version 4.8 or later below version 5, which is not installed: pip install tiles"),
        ("4.7.9", "; 4.7.9 is installed: pip install tiles"),
        ("5.0.0", "; 5.0.0 is installed: pip install tiles"),
        ("4.8", ""),
        ("4.10.1+cu130", ""),
    ],
)
def test_package_of_the_wrong_version_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, complaint: str
) -> None:
    install(monkeypatch, **({} if installed is None else {"tiles": installed}))
    entry = language(packages=(Package("tiles", "tiles", (4, 8), (5,)),))
    if not complaint:
        check_requirements(entry)
        return
    with pytest.raises(UnsupportedLanguage) as refused:
        check_requirements(entry)
    told = str(refused.value)
    assert told.endswith(complaint) and "\n" not in told and "'tiles' needs the package" in told


def test_cute_with_libraries_for_cuda_12_only_names_those_for_cuda_13(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {"nvidia-cutlass-dsl-libs-base": "4.8.1", "nvidia-cutlass-dsl-libs-cu12": "4.8.1"}
    install(monkeypatch, **found)
    with pytest.raises(UnsupportedLanguage, match=r"libs-cu13 .*not installed.*dsl\[cu13\]"):
        check_requirements(LANGUAGES["cute"])


def test_checkout_of_headers_is_asked_for_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = language(headers=(TILES,))
    monkeypatch.delenv("TILES_ROOT", raising=False)
    with pytest.raises(UnsupportedLanguage, match="named by TILES_ROOT, which is not set"):
        check_requirements(entry)
    assert header_paths(entry) == ()
    monkeypatch.setenv("TILES_ROOT", str(tmp_path))
    with pytest.raises(UnsupportedLanguage, match=r"holds no include/tiles\.cuh"):
        check_requirements(entry)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "tiles.cuh").write_text("")
    check_requirements(entry)
    assert header_paths(entry) == (str((tmp_path / "include").resolve()),)


def test_thunderkittens_root_that_is_no_checkout_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = LANGUAGES["thunderkittens"]
    monkeypatch.setattr(requirements, "_FINDERS", {"nvcc": str, "c++": str})
    monkeypatch.setenv("THUNDERKITTENS_ROOT", str(tmp_path))
    with pytest.raises(UnsupportedLanguage) as refused:
        check_requirements(entry)
    told = str(refused.value)
    assert "\n" not in told and told.endswith(f"{str(tmp_path)!r} holds no include/kittens.cuh")
    assert "checkout of https://github.com/HazyResearch/ThunderKittens" in told


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_thunderkittens_in_a_precision_that_it_lacks_is_refused(precision: str) -> None:
    with pytest.raises(UnsupportedLanguage, match=f"does not compute in {precision}"):
        check_language("thunderkittens", "cuda:0", precision)


def test_thunderkittens_is_for_hopper_only(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = dataclasses.replace(LANGUAGES["thunderkittens"], tools=(), headers=())
    for capability, complaint in (
        ((8, 0), r"capability 9\.0 or later"),
        ((10, 0), r"capability below 10\.0"),
    ):
        gpu = CudaDevice("GPU", 8 << 30, capability, (13, 0))
        monkeypatch.setattr(devices, "_ask_driver", lambda visible, gpu=gpu: (gpu,))
        with pytest.raises(UnsupportedLanguage, match=complaint):
            check_requirements(entry, device="cuda:0")
    gpu = CudaDevice("H100", 80 << 30, (9, 0), (13, 0))
    monkeypatch.setattr(devices, "_ask_driver", lambda visible: (gpu,))
    check_requirements(entry, device="cuda:0")


@pytest.mark.parametrize(
    ("gpu", "complaint"),
    [
        (CudaDevice("Old", 8 << 30, (7, 5), (13, 0)), r"capability 8\.0 or later; .* has 7\.5"),
        (CudaDevice("New", 8 << 30, (9, 0), (12, 8)), r"supports CUDA 13\.0 or later; .* 12\.8"),
        (CudaDevice("New", 8 << 30, (9, 0), (13, 0)), ""),
        (CudaDevice("New", 8 << 30, (9, 0)), ""),
    ],
)
def test_gpu_or_driver_that_is_too_old_is_told(
    monkeypatch: pytest.MonkeyPatch, gpu: CudaDevice, complaint: str
) -> None:
    monkeypatch.setattr(devices, "_ask_driver", lambda visible: (gpu,))
    entry = language(least_capability=(8, 0), least_driver=(13, 0))
    check_requirements(entry, device="cpu")
    if complaint:
        with pytest.raises(UnsupportedLanguage, match=complaint):
            check_requirements(entry, device="cuda:0")
    else:
        check_requirements(entry, device="cuda:0")


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("cuda:75", r"capability 8\.0 or later; sm_75 has 7\.5"),
        ("cuda:100a", r"capability below 10\.0; sm_100 has 10\.0"),
        ("cuda:90a", ""),
        ("hip:gfx942", ""),
    ],
)
def test_gpu_that_is_compiled_for_without_one_is_checked(target: str, complaint: str) -> None:
    entry = language(least_capability=(8, 0), below_capability=(10, 0))
    if not complaint:
        check_requirements(entry, target=target)
        return
    with pytest.raises(UnsupportedLanguage, match=complaint):
        check_requirements(entry, target=target)
