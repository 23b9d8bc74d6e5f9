"""The memory budget: its arithmetic, where its default comes from, and sizes as text."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgym import devices, judging_memory
from kernelgym.errors import UsageError
from kernelgym.judging_memory import (
    SPARE_BYTES,
    control_group_bytes,
    device_bytes,
    in_gigabytes,
    judging_bytes,
    memory_budget,
    parse_bytes,
)

SIZES = st.integers(0, 1 << 45)
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
UNLIMITED_V1 = 9223372036854771712  # what version 1 says where nothing was set


@given(SIZES, SIZES, SIZES, st.integers(1, 1 << 40))
def test_need_grows_with_every_tensor(i: int, o: int, p: int, more: int) -> None:
    need = judging_bytes(i, o, p)
    assert need >= 2 * (i + o) + p and judging_bytes(0) == SPARE_BYTES
    assert judging_bytes(i + more, o, p) == judging_bytes(i, o + more, p) == need + 2 * more
    assert judging_bytes(i, o, p + more) == need + more


@given(st.integers(1, 1 << 50))
def test_budget_given_is_kept_on_any_device(size: int) -> None:
    assert memory_budget(size, "cuda:7") == size
    assert memory_budget(float(1 << 20), "cpu") == 1 << 20


@pytest.mark.parametrize("odd", [0, -1, 0.5, True, "12GB", float("nan"), float("inf"), [1]])
def test_budget_that_is_no_size_is_refused(odd: Any) -> None:
    with pytest.raises(UsageError, match=r"whole number of bytes above 0.*leave it out"):
        memory_budget(odd, "cpu")


def test_default_budget_is_half_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = tuple(devices.CudaDevice("a GPU", size << 30, (9, 0)) for size in (80, 24))
    monkeypatch.setattr(devices, "cuda_devices", lambda: gpus)
    assert memory_budget(None, "cuda") == 40 << 30
    assert memory_budget(None, "cuda:1") == 12 << 30
    with pytest.raises(UsageError, match="cuda:2"):
        memory_budget(None, "cuda:2")
    for limit, whole in ((None, MACHINE), (MACHINE + 1, MACHINE), (3 << 20, 3 << 20)):
        monkeypatch.setattr(judging_memory, "control_group_bytes", lambda limit=limit: limit)
        assert device_bytes("cpu") == whole
        assert memory_budget(None, "cpu") == whole // 2


def write(root: Path, limits: dict[str, object]) -> None:
    for path, limit in limits.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{limit}\n")


V1 = "9:cpu,cpuacct:/\n4:memory:/jobs/one\n1:name=systemd:/\n0::/\n"
V2 = "0::/user.slice/one.scope\n"


@pytest.mark.parametrize(
    ("listed", "limits", "found"),
    [
        (V2, {"user.slice/one.scope/memory.max": 5000}, 5000),
        (V2, {"user.slice/one.scope/memory.max": "max", "user.slice/memory.max": 7000}, 7000),
        (V2, {"user.slice/one.scope/memory.max": 9000, "user.slice/memory.max": 7000}, 7000),
        (V2, {"user.slice/one.scope/memory.max": "max"}, None),
        (V2, {"memory.max": 6000}, 6000),  # in a container the path leads nowhere
        (V2, {"unified/user.slice/one.scope/memory.max": 4000}, 4000),
        (V1, {"memory/jobs/one/memory.limit_in_bytes": 5000}, 5000),
        (V1, {"memory/jobs/memory.limit_in_bytes": 5000}, 5000),
        (V1, {"memory/memory.limit_in_bytes": UNLIMITED_V1}, UNLIMITED_V1),
        (V1, {"memory/memory.limit_in_bytes": UNLIMITED_V1, "memory.max": 8000}, 8000),
        ("4:cpu,memory:/a\n", {"cpu,memory/a/memory.limit_in_bytes": 3000}, 3000),
        (V1, {"cpu,cpuacct/memory.limit_in_bytes": 1}, None),
        ("", {"memory.max": 6000}, None),
    ],
)
def test_least_limit_of_control_groups_is_found(
    tmp_path: Path, listed: str, limits: dict[str, object], found: int | None
) -> None:
    (tmp_path / "cgroup").write_text(listed)
    write(tmp_path / "mounted", limits)
    assert control_group_bytes(tmp_path / "cgroup", tmp_path / "mounted") == found


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert control_group_bytes(tmp_path / "none", tmp_path) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("", None), (" ", None), ("1", 1), ("12000000000", 12 * 10**9), ("6e9", 6 * 10**9)),
        *(("12GB", 12 * 10**9), ("12 gb", 12 * 10**9), ("12G", 12 * 10**9), ("1.5MB", 1_500_000)),
        *(("8GiB", 8 << 30), ("8gi", 8 << 30), ("2TiB", 2 << 40), ("3KB", 3000), ("500b", 500)),
    ],
)
def test_sizes_are_read_with_their_units(text: str, size: int | None) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("odd", ["much", "-1GB", "12XB", "0", "0.1", "GB", "1e999", "12GB,", "nan"])
def test_text_that_is_no_size_is_refused(odd: str) -> None:
    with pytest.raises(UsageError, match="12GB, 8GiB or 6e9"):
        parse_bytes(odd)


@given(st.integers(10**6, 1 << 50))
def test_sizes_are_read_as_they_are_written(size: int) -> None:
    assert parse_bytes(str(size)) == size
    assert parse_bytes(in_gigabytes(size)) == pytest.approx(size, rel=0.5)


@given(st.text("0123456789.-eEGgiIMbB ", max_size=8))
def test_any_text_is_a_size_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert (parse_bytes(text) or 1) >= 1
