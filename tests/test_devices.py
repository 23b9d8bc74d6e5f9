"""Names of devices, and what is made of the driver's answers (a stand-in's: no GPU is needed)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import devices
from kernelgym.devices import CudaDevice, check_device, cuda_devices, find_device
from kernelgym.errors import UsageError

ROWS = [["NVIDIA H200", 150 << 30, 9, 0, 13000], ["NVIDIA A10G", 22 << 30, 8, 6, 12080]]


class Driver:
    """Stands in for the process that asks the driver."""

    def __init__(self, rows: object = (), error: str = "", code: int = 0) -> None:
        self.answer = subprocess.CompletedProcess((), code, json.dumps(rows), error)
        self.asked: list[list[str]] = []

    def run(self, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        self.asked.append(command)
        return self.answer


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> object:
    """Return a function that installs what the driver answers from now on."""

    def install(*arguments: object, **options: object) -> Driver:
        driver = Driver(*arguments, **options)
        monkeypatch.setattr(devices.subprocess, "run", driver.run)
        devices._ask_driver.cache_clear()
        return driver

    yield install
    devices._ask_driver.cache_clear()


@given(st.integers(0, 10**6))
def test_names_of_devices_are_their_own_canonical_names(number: int) -> None:
    assert check_device(f"cuda:{number}") == f"cuda:{number}"


def test_the_first_device_may_go_without_its_number() -> None:
    assert check_device("cuda") == "cuda:0" and check_device("cpu") == "cpu"


@pytest.mark.parametrize(
    "name",
    ["", "CPU", "cpu:0", "cuda:", "cuda:00", "cuda:-1", "cuda:1 ", "cuda:١", "cuda:0\n", "gpu"],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be judged on; known: cpu, cuda:N"):
        check_device(name)


@given(st.none() | st.integers() | st.binary() | st.lists(st.text()) | st.text())
def test_any_value_is_a_device_or_a_usage_error(value: object) -> None:
    try:
        name = check_device(value)
    except UsageError:
        return
    kind, _, number = name.partition(":")
    assert name == "cpu" or (kind == "cuda" and str(int(number)) == number)


def test_devices_are_as_the_driver_says(answers) -> None:
    answers(ROWS)
    first, second = cuda_devices()
    assert first == CudaDevice("NVIDIA H200", 150 << 30, (9, 0), (13, 0))
    assert second == CudaDevice("NVIDIA A10G", 22 << 30, (8, 6), (12, 8))


def test_the_cpu_is_found_without_asking(answers) -> None:
    driver = answers(code=1, error="there is no driver")
    assert find_device("cpu") == "cpu" and driver.asked == []


def test_a_device_is_found_by_its_number_or_the_others_are_named(answers) -> None:
    answers(ROWS)
    assert find_device("cuda") == "cuda:0" and find_device("cuda:1") == "cuda:1"
    with pytest.raises(UsageError) as error:
        find_device("cuda:2")
    for text in ("'cuda:2' does not exist", "cpu, cuda:0 (NVIDIA H200), cuda:1 (NVIDIA A10G)"):
        assert text in str(error.value)


def test_the_driver_is_asked_once_for_each_choice_of_visible_devices(answers, monkeypatch) -> None:
    driver = answers(ROWS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    for _ in range(3):
        find_device("cuda:1")
    assert len(driver.asked) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    cuda_devices()
    assert len(driver.asked) == 2


def test_no_visible_device_is_said(answers) -> None:
    answers([])
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        find_device("cuda:0")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "Traceback\n  noise\ncuInit says it is not ready (802)\n",
            r"cuInit says it is not ready \(802\)",
        ),
        ("", "exit status 3"),
    ],
)
def test_a_driver_that_fails_is_quoted(error: str, said: str, answers) -> None:
    driver = answers(error=error, code=3)
    for _ in range(2):  # a failure is not remembered: the driver may come up
        with pytest.raises(UsageError, match=f"no CUDA device can be used here: {said}; install"):
            find_device("cuda:0")
    assert len(driver.asked) == 2


LIBRARY = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { return getenv("BROKEN") ? 802 : getenv("EMPTY") ? 100 : 0; }
int cuGetErrorString(int code, const char **text) { *text = "it is broken"; return 0; }
int cuDriverGetVersion(int *version) { *version = 13020; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index + 10; return 0; }
int cuDeviceGetName(char *name, int size, int device) {
  strncpy(name, device == 10 ? "First" : "Second", size);
  return 0;
}
int cuDeviceTotalMem_v2(size_t *size, int device) { *size = (size_t)device << 32; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? device - 2 : 6;
  return 0;
}
"""


def _ask(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", devices._QUESTION],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder), **environment},
    )


def test_the_question_is_one_that_a_driver_understands(tmp_path: Path) -> None:
    source = tmp_path / "driver.c"
    source.write_text(LIBRARY)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert json.loads(_ask(tmp_path).stdout) == [
        ["First", 10 << 32, 8, 6, 13020],
        ["Second", 11 << 32, 9, 6, 13020],
    ]
    assert json.loads(_ask(tmp_path, EMPTY="1").stdout) == []
    broken = _ask(tmp_path, BROKEN="1")
    assert broken.returncode == 1
    assert broken.stderr.strip().splitlines()[-1] == "cuInit says it is broken (802)"
    library.write_text("no library")
    missing = _ask(tmp_path)
    assert missing.returncode == 1 and "the driver's library is missing" in missing.stderr


@pytest.mark.parametrize(
    ("name", "visible", "there"),
    [
        ("cuda:0", None, "0"),
        ("cuda:3", None, "3"),
        ("cuda:1", "4,6", "6"),
        ("cuda:0", "GPU-1a2b, GPU-3c4d", "GPU-1a2b"),
        ("cuda:1", "GPU-1a2b, GPU-3c4d", "GPU-3c4d"),
    ],
)
def test_a_process_of_its_own_sees_one_device(name: str, visible: str | None, there: str) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert devices.alone(name, environment) == ("cuda:0", {"CUDA_VISIBLE_DEVICES": there})


@pytest.mark.parametrize(
    ("name", "visible", "named"),
    [
        ("cuda:3", None, "GPU-c2a5"),
        ("cuda:1", "4,6", "GPU-c2a5"),
        ("cuda:0", "GPU-c2a5", "GPU-c2a5"),
        ("cuda:1", "MIG-1a2b, MIG-3c4d", "MIG-3c4d"),
    ],
)
def test_gpu_is_named_by_its_uuid_and_a_slice_by_its_own(
    name: str, visible: str | None, named: str
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert devices.named_by_uuid(name, "c2a5", environment) == named


def test_a_process_on_the_cpu_sees_what_it_saw() -> None:
    assert devices.alone("cpu", {"CUDA_VISIBLE_DEVICES": "1"}) == ("cpu", {})
