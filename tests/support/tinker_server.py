"""Starting and ending the third party's Tinker server that `make tinker-server` installs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-tinker" / "bin" / "python"
"""The interpreter that has skyrl; `make test-tinker` makes it."""
PREPARED = ROOT / "runs" / "prepared"
"""Folder with a warm-started model and its problems; `make test-tinker` prepares it."""
_UP_S = 120.0


class Server:
    """A server process that can be ended and started again on the same folder and port.

    Args:
        model: Folder of the model.
        folder: Where database, checkpoints and its log lie.
        compiled: Where it keeps what it has compiled, which servers of one model may share; its
            own folder if None.
    """

    def __init__(self, model: Path, folder: Path, compiled: Path | None = None) -> None:
        self.model, self.folder = model, folder
        self._environment = dict(os.environ)
        if compiled is not None:
            self._environment["JAX_COMPILATION_CACHE_DIR"] = str(compiled)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address for ``tinker.base_url``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder / "server.log"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        program = ROOT / "tests" / "tinker_server" / "server.py"
        given = ["--model", self.model, "--port", self.port, "--folder", self.folder]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(PYTHON), str(program), *map(str, given)],
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        until = time.monotonic() + _UP_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=5).close()
                return
            time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"the Tinker server did not start:\n{self.log.read_text()[-3000:]}")

    def stop(self, by: int = signal.SIGTERM) -> None:
        """End API and engine, and wait for both."""
        if self._process is None:
            return
        engines = _children(self._process.pid)
        if self._process.poll() is None:
            self._process.send_signal(by)
        self._process.wait(60)
        until = time.monotonic() + 60
        while any(_runs(pid) for pid in engines):
            if time.monotonic() > until:
                raise RuntimeError(f"engines {engines} outlived their server")
            time.sleep(0.1)
        self._process = None

    def pending(self, kind: str) -> int:
        """Return how many requests of a kind, such as ``sample``, are not answered yet."""
        asked = "SELECT COUNT(*) FROM futures WHERE lower(request_type) = ? AND lower(status) = ?"
        with contextlib.closing(
            sqlite3.connect(f"file:{self.folder / 'tinker.db'}?mode=ro", uri=True)
        ) as database:
            return int(database.execute(asked, (kind, "pending")).fetchone()[0])

    @property
    def engines(self) -> list[int]:
        """Ids of its engine processes."""
        return _children(self._process.pid) if self._process else []


@contextlib.contextmanager
def running(model: Path, folder: Path, compiled: Path | None = None) -> Iterator[Server]:
    """Run a server for a model's folder; see `Server`."""
    server = Server(model, folder, compiled)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
