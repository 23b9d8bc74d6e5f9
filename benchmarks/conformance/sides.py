"""The two halves of a conformance run that outlive a case: KernelBench's process, and the journal.

`Server` keeps `server.py` running and replaces it when it dies; `Journal` keeps what
each side said, so that a run can be resumed. Neither compares anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.conformance.cases import Case, Outcome
from kernelgym.types import Problem

START_S = 120.0
"""How long KernelBench may take to import."""
SERVER = Path(__file__).with_name("server.py")


class Server:
    """KernelBench's evaluation in a process of its own, started when needed and replaced if it
    dies, hangs or leaves a broken CUDA context."""

    def __init__(
        self, root: Path, device: str, caches: Path, log: Path, timed_calls: int = 0
    ) -> None:
        program = [sys.executable, str(SERVER), str(root.absolute()), device]
        self._command = [*program, str(timed_calls)]
        self._environment = {
            **os.environ,
            # One place each for all cases, so that no library is compiled twice.
            "TORCH_EXTENSIONS_DIR": str(caches / "extensions"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
        }
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.hello: dict[str, Any] = {}
        self.starts = 0

    def evaluate(self, case: Case, problem: Problem) -> Outcome:
        """Have one case evaluated; a process that ends or overruns is filed as its script does."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        request = {
            "problem": problem.source,
            "kernel": case.kernel.source,
            "language": case.kernel.language,
        }
        started = time.monotonic()
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            line = self._next_line(case.limit_s)
        except BrokenPipeError:
            line = ""
        wall_s = round(time.monotonic() - started, 3)
        if not line:
            hung = self._process.poll() is None
            self.close()
            message = f"no answer within {case.limit_s:g} s" if hung else "the process ended"
            return Outcome((False, False), "timeout", message, wall_s)
        answer = json.loads(line)
        if answer.pop("broken", False):
            self.close()
        pair = answer["pair"]
        return Outcome(
            None if pair is None else (pair[0], pair[1]),
            answer["reason"],
            answer["message"],
            wall_s,
        )

    def _start(self) -> None:
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        with self._log.open("a") as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                text=True,
                start_new_session=True,
            )

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        self._process, self._lines = process, lines
        self.starts += 1
        line = self._next_line(START_S)
        if not line:
            self.close()
            raise RuntimeError(f"KernelBench's evaluation did not start; see {self._log}")
        self.hello = json.loads(line)

    def _next_line(self, limit_s: float) -> str:
        try:
            return self._lines.get(timeout=limit_s)
        except queue.Empty:
            return ""

    def close(self) -> None:
        """End the process and whatever it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Journal:
    """Finished halves of cases, one JSON object per line; what makes a run resumable."""

    def __init__(self, path: Path, resume: bool) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str, str], Outcome] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            path.unlink(missing_ok=True)
        elif path.exists():
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError, KeyError):  # a line cut short by a kill
                    entry = json.loads(line)
                    key = entry["side"], entry["case"], entry["fingerprint"]
                    if entry["pair"] is None:  # it said nothing, and is asked again
                        continue
                    entry["pair"] = tuple(entry["pair"])
                    self._found[key] = Outcome(
                        **{f.name: entry[f.name] for f in dataclasses.fields(Outcome)}
                    )
        self._file = path.open("a", buffering=1)
        if self._file.tell():
            self._file.write("\n")  # the last line may have been cut short

    def get(self, side: str, case: Case, mark: str) -> Outcome | None:
        """Return what a side said, if it did."""
        with self._lock:
            return self._found.get((side, case.name, mark))

    def add(self, side: str, case: Case, mark: str, outcome: Outcome) -> None:
        """Note what a side said."""
        entry = {"side": side, "case": case.name, "fingerprint": mark}
        with self._lock:
            self._found[side, case.name, mark] = outcome
            print(json.dumps({**entry, **dataclasses.asdict(outcome)}), file=self._file)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
