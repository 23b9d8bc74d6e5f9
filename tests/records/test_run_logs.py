"""logs.log: written while this process holds the run, with what a command says and how it ends."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from pathlib import Path

import pytest

from kernelgym.records.run_lock import LOG, RunLock
from kernelgym.records.run_logs import LOG_FILE, run_logs, tell


def lines(folder: Path) -> list[str]:
    """Return the messages of a log without their times."""
    text = (folder / LOG_FILE).read_text().splitlines()
    return [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "", line) for line in text]


def test_log_holds_what_was_said_from_the_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest
    folder = tmp_path / "run"
    with run_logs(folder):
        tell("before there is a folder", "kernelgym: ")
        folder.mkdir()
        with RunLock(folder):
            LOG.info("in hand")
            logging.getLogger("other").warning("of a library")
            logging.getLogger("other").info("left out")
    told = lines(folder)
    assert re.fullmatch(r"INFO begun by process \d+ on \S+", told[0])
    assert told[1:] == [
        *("INFO before there is a folder", f"INFO writing the run in {folder}", "INFO in hand"),
        *("WARNING of a library", "INFO ended"),
    ]
    assert capsys.readouterr().err == "kernelgym: before there is a folder\nof a library\n"


def test_refused_command_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    with contextlib.suppress(ValueError), run_logs(tmp_path):
        raise ValueError("refused")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyboardInterrupt("interrupted; go on"), ["INFO interrupted; go on"]),
        (KeyboardInterrupt(), ["INFO interrupted"]),
        (ValueError("broken"), ["ERROR failed", "ValueError: broken"]),
    ],
)
def test_log_says_how_a_command_ended(
    error: BaseException, said: list[str], tmp_path: Path
) -> None:
    with contextlib.suppress(KeyboardInterrupt, ValueError), run_logs(tmp_path):
        with RunLock(tmp_path):
            LOG.info("in hand")
        raise error
    assert set(said) <= set(lines(tmp_path))


def test_failure_of_a_command_prints_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest
    with contextlib.suppress(ValueError), run_logs(tmp_path), RunLock(tmp_path):
        logging.getLogger("other").warning("of a library")
        raise ValueError("broken")
    assert capsys.readouterr().err == "of a library\n"
    assert "ValueError: broken" in lines(tmp_path)
    logging.getLogger("other").warning("later")
    LOG.warning("later, of a command")
    assert capsys.readouterr().err == "later\nlater, of a command\n", "the printer is as it was"


def test_warnings_are_logged_and_still_raised_for_others(tmp_path: Path) -> None:
    with run_logs(tmp_path), RunLock(tmp_path), pytest.warns(UserWarning, match="look out"):
        LOG.info("in hand")
        warnings.warn("look out", UserWarning, stacklevel=1)
    root = logging.getLogger()
    before = list(root.handlers)
    with run_logs(tmp_path), RunLock(tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("look out", UserWarning, stacklevel=1)
    assert "WARNING UserWarning: look out" in lines(tmp_path)
    assert root.handlers == before


def test_second_command_is_appended(tmp_path: Path) -> None:
    for _ in range(2):
        with run_logs(tmp_path), RunLock(tmp_path):
            LOG.info("in hand")
    assert lines(tmp_path).count("INFO ended") == 2
