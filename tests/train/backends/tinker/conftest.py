"""The third party's server that tests marked ``tinker`` share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tinker_server import PREPARED, Server, running


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what servers compile: each shape takes 4 to 20 s, and modules share them."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> Iterator[Server]:
    """A server of the warm-started model, with adapter slots of its own for each module."""
    if not (PREPARED / "start" / "prepared.json").is_file():
        pytest.skip(f"needs {PREPARED}, which `make test-tinker` prepares")
    with running(PREPARED / "start", tmp_path_factory.mktemp("server"), compiled) as found:
        yield found
