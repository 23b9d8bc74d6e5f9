"""The soak of the verdict service: small, and what its checks find."""

from __future__ import annotations

import copy
import json
import sys

import pytest

from benchmarks.service import soak

SOUND = {
    "wanted": 10,
    "verdicts": 10,
    "unequal": [],
    "statuses": {"correct": 10},
    "stored": {"jobs": 10, "done": 10, "finals": 10, "most_finals": 1},
    "lives": [[{"verdicts": n, "server_mib": 70.0, "server_files": 20} for n in range(6)]],
    "left": [],
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"stored": {"jobs": 11, "done": 11, "finals": 11, "most_finals": 1}}, "10 jobs were sent"),
        ({"stored": {"jobs": 10, "done": 10, "finals": 10, "most_finals": 2}}, "10 jobs were sent"),
        ({"verdicts": 9}, "9 verdicts of 10"),
        ({"unequal": [[3, ["wrong"], ["correct"]]]}, "unequal"),
        ({"statuses": {"correct": 9, "unavailable": 1}}, "1 verdicts are unavailable"),
        ({"left": ["1 worker"]}, "processes are left"),
    ],
)
def test_check_of_a_soak_names_what_does_not_hold(changes, told) -> None:
    faults = soak._faults(copy.deepcopy(SOUND) | changes)
    assert (told is None and not faults) or (len(faults) == 1 and told in faults[0])


def test_server_that_grows_or_keeps_files_open_is_a_fault() -> None:
    grown, files = copy.deepcopy(SOUND), copy.deepcopy(SOUND)
    grown["lives"][0][-1]["server_mib"] = 170.0
    files["lives"][0][-1]["server_files"] = 1000
    assert "grew" in soak._faults(grown)[0] and "1000 files open" in soak._faults(files)[0]


@pytest.mark.slow
def test_small_soak_loses_nothing(tmp_path, monkeypatch) -> None:
    out = tmp_path / "soak.json"
    small = ("--scripted", "100", "--real", "0", "--server-kills", "1", "--out", str(out))
    monkeypatch.setattr(sys, "argv", ["soak", "--folder", str(tmp_path / "soak"), *small])
    assert soak.main() == 0
    (phase,) = json.loads(out.read_text())["phases"]
    assert phase["verdicts"] == 100 and phase["server_kills"] == phase["client_kills"] == 1
