"""Thousands of verdicts through a service that loses workers, servers, clients and connections.

Run ``python -m benchmarks.service.soak --folder DIR [--out FILE]``. Three keys, 32 connections from
four client processes, on loopback:

`scripted`: 9,500 verdicts by scripted worker processes, of which one is killed every 2 s;
`real`: 500 verdicts of the CPU judge, of whose workers one is killed every 30 s.

In each phase the server is killed three times and started again on its state folder, connections
are cut at random, and one client process is killed and started again; it then makes the same
requests under the same idempotency keys. Every job must have exactly one final verdict, equal to
that of the same kernel without faults; at most 0.1 % may be `unavailable`; the server must not
grow, and no process may be left.

``--seconds`` ends a run after the batches that have begun; ``--resume`` goes on in the same folder.
A run that is killed cannot go on: `RemoteEvaluator` would send its open batches as new ones.
Exit code 0: all holds; 1: something does not; 3: not finished.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.judge.judge_throughput import unseen
from benchmarks.machine import machine
from benchmarks.service.clients import Proxy, Share, done_batches, told
from benchmarks.service.servers import make_keys, running
from benchmarks.soak.watch import below, command, naming, open_files, processes, resident_mib
from kernelgym.judge import LocalEvaluator
from kernelgym.suites import get_problem
from kernelgym.testing import SAMPLE_BROKEN, SAMPLE_KERNELS, SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Kernel, Problem

TENANTS = ("ann", "bob", "cid")
CLIENTS = 4
THREADS = 8
PLAIN = CLIENTS - 1  # the client that is killed
GROWTH_MIB = 24.0
MOST_FILES = 2 * CLIENTS * THREADS + 32  # two connections for each client's one, and its own
MOST_UNAVAILABLE = 0.001
SCRIPT = ("correct", "wrong", "compile_error", "runtime_error", "timeout", "rejected")
SLIP = "\n_old = ModelNew.forward\nModelNew.forward = lambda self, *x: _old(self, *x) * 1.1\n"
RAISE = "\ndef _fail(self, *x):\n    raise RuntimeError('on purpose')\n\nModelNew.forward = _fail\n"


@dataclasses.dataclass(frozen=True)
class Phase:
    """One part of the soak."""

    name: str
    count: int
    """Number of verdicts."""
    batch: int
    """Number of kernels in a batch."""
    worker_every_s: float
    """Seconds between two kills of a worker."""
    worker: str
    """Text in the command line of a worker process."""
    problem: Problem
    kernel: Callable[[int], list[str]]
    """Returns language, source and seed of a job."""
    expected: Callable[[Path], list[list[Any]]]
    """Returns what the verdict of each job is without faults."""
    server: Callable[[Path, int], list[str]]
    """Returns the server's command, given the folder and the port."""


def scripted_phase(count: int) -> Phase:
    """Return the phase whose verdicts come from a script."""
    problem = get_problem("Synthetic/L1/1")

    def kernel(number: int) -> list[str]:
        return ["triton", f"# verdict: {SCRIPT[number % len(SCRIPT)]}\n# soak {number}\n", ""]

    def expected(_: Path) -> list[list[Any]]:
        judge = ScriptedEvaluator()
        found = []
        for number in range(count):
            language, source, seed = kernel(number)
            found.append(told(judge.evaluate(problem, Kernel(source, language), seed=seed)))
        return found

    def server(folder: Path, port: int) -> list[str]:
        program = [sys.executable, "-m", "benchmarks.service.scripted_workers"]
        return [*program, str(folder / "state"), str(port), str(folder / "keys.yaml"), "4", "0.02"]

    return Phase("scripted", count, 25, 2.0, " -S -c", problem, kernel, expected, server)


def real_phase(count: int) -> Phase:
    """Return the phase that the CPU's judge judges, without timing."""
    problem = dataclasses.replace(SAMPLE_PROBLEM, id="Sample/1_sample")
    right, cpp = SAMPLE_KERNELS["triton"], SAMPLE_KERNELS["cpp"]
    base = (
        *(right, right, Kernel(right.source + SLIP, "triton"), cpp),
        *(Kernel(right.source + RAISE, "triton"), SAMPLE_BROKEN["triton"]),
    )

    def kernel(number: int) -> list[str]:
        chosen = base[number % len(base)]
        source = chosen.source if chosen is cpp else unseen(chosen, f"soak {number}").source
        return [chosen.language, source, f"{number % len(base):032x}"]

    def expected(folder: Path) -> list[list[Any]]:
        kept = folder / "expected.json"
        if not kept.exists():
            with LocalEvaluator("cpu", workers=2, timing=False) as judge:
                rows = [
                    told(judge.evaluate(problem, each, seed=f"{number:032x}"))
                    for number, each in enumerate(base)
                ]
            kept.write_text(json.dumps(rows))
        rows = json.loads(kept.read_text())
        return [rows[number % len(base)] for number in range(count)]

    def server(folder: Path, port: int) -> list[str]:
        suite = folder / "Sample"
        suite.mkdir(exist_ok=True)
        (suite / "1_sample.py").write_text(SAMPLE_PROBLEM.source)
        settings = ("--workers", "2", "--no-timing", "--suites", str(suite), "--port", str(port))
        files = ("--state", str(folder / "state"), "--keys", str(folder / "keys.yaml"))
        return [sys.executable, "-m", "kernelgym", "serve", *files, *settings]

    worker = "kernelgym.judge.worker"
    return Phase("real", count, 2, 30.0, worker, problem, kernel, expected, server)


class Soak:
    """One phase in its folder, run in one go or in several.

    Args:
        phase: The phase.
        folder: Its folder.
        server_kills: Number of times that the server is killed.
        until: Time, by `time.time`, after which no batch is begun.
    """

    def __init__(self, phase: Phase, folder: Path, server_kills: int, until: float) -> None:
        self._phase, self._folder, self._kills, self._until = phase, folder, server_kills, until
        folder.mkdir(parents=True, exist_ok=True)
        self._facts_file = folder / "facts.json"
        self.facts: dict[str, Any] = {
            **{"parts": 0, "wall_s": 0.0, "worker_kills": 0, "server_kills": 0},
            **{"client_kills": 0, "cuts": 0, "lives": [], "port": _free_port()},
        }
        if self._facts_file.exists():
            self.facts = json.loads(self._facts_file.read_text())
        else:
            keys = make_keys(folder / "keys.yaml", *TENANTS)
            (folder / "keys.json").write_text(json.dumps(keys))
            self._save()
        self._random = random.Random(self.facts["parts"])
        self._server: subprocess.Popen[bytes] | None = None
        self._stack = contextlib.ExitStack()

    def batches(self) -> dict[str, list[int]]:
        """Return the numbers of the jobs of each batch."""
        size, count = self._phase.batch, self._phase.count
        return {
            f"{self._phase.name}-{first}": list(range(first, min(count, first + size)))
            for first in range(0, count, size)
        }

    def done(self) -> dict[str, Any]:
        """Return the finished batches of all clients."""
        return {
            name: row
            for number in range(CLIENTS)
            for name, row in done_batches(self._folder / f"out{number}.jsonl").items()
        }

    def _progress(self) -> int:
        """Return about how many verdicts there are, without reading them."""
        outs = self._folder.glob("out*.jsonl")
        return self._phase.batch * sum(path.read_bytes().count(b"\n") for path in outs)

    def run(self) -> None:
        """Run the clients, and kill what has to be killed, until they end."""
        started = time.monotonic()
        with self._stack:
            self._start_server()
            proxy = Proxy(self.facts["port"], 0.5, self.facts["parts"])
            clients = [self._start_client(number, proxy.port) for number in range(CLIENTS)]
            next_worker = next_sample = time.monotonic() + self._phase.worker_every_s
            while any(each.poll() is None for each in clients):
                time.sleep(0.1)
                now, done = time.monotonic(), self._progress()
                if now >= next_worker:
                    next_worker = now + self._phase.worker_every_s
                    self._kill_worker()
                if now >= next_sample:
                    next_sample = now + 2.0
                    self._sample()
                share = (self.facts["server_kills"] + 1) / (self._kills + 1)
                if self.facts["server_kills"] < self._kills and done >= share * self._phase.count:
                    self._restart_server()
                if not self.facts["client_kills"] and done >= 0.4 * self._phase.count:
                    clients[PLAIN].kill()
                    clients[PLAIN].wait()
                    clients[PLAIN] = self._start_client(PLAIN, proxy.port)
                    self.facts["client_kills"] += 1
            self.facts["cuts"] += proxy.cuts
            self._end_server()
        self.facts["parts"] += 1
        self.facts["wall_s"] += time.monotonic() - started
        self._save()

    def _save(self) -> None:
        self._facts_file.write_text(json.dumps(self.facts))

    def _start_server(self) -> None:
        found = running(self._phase.server(self._folder, self.facts["port"]))
        self._server = self._stack.enter_context(found)[0]
        self.facts["lives"].append([])

    def _restart_server(self) -> None:
        assert self._server is not None
        self._server.kill()
        self._server.wait()
        self.facts["server_kills"] += 1
        print(f"server killed, {self.facts['server_kills']} times so far", flush=True)
        time.sleep(1.0)
        self._start_server()

    def _end_server(self) -> None:
        assert self._server is not None
        self._server.send_signal(signal.SIGTERM)
        self.facts["exit_code"] = self._server.wait(120)

    def _start_client(self, number: int, port: int) -> subprocess.Popen[bytes]:
        mine = [name for place, name in enumerate(self.batches()) if place % CLIENTS == number]
        numbers, keys = self.batches(), json.loads((self._folder / "keys.json").read_text())
        share = Share(
            f"http://127.0.0.1:{port}",
            keys[TENANTS[number % len(TENANTS)]],
            str(self._folder / f"out{number}.jsonl"),
            {
                field.name: getattr(self._phase.problem, field.name)
                for field in dataclasses.fields(Problem)
                if field.init
            },
            {name: [self._phase.kernel(each) for each in numbers[name]] for name in mine},
            self._until,
            THREADS,
            plain=number == PLAIN,
        )
        file = self._folder / f"client{number}.json"
        file.write_text(json.dumps(dataclasses.asdict(share)))
        return subprocess.Popen([sys.executable, "-m", "benchmarks.service.clients", str(file)])

    def _workers(self) -> list[int]:
        assert self._server is not None
        found = below(self._server.pid, processes())
        return [each[0] for each in found if self._phase.worker in command(each)]

    def _kill_worker(self) -> None:
        if workers := self._workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._random.choice(workers), signal.SIGKILL)
                self.facts["worker_kills"] += 1

    def _sample(self) -> None:
        assert self._server is not None
        with contextlib.suppress(OSError):
            pid = self._server.pid
            sample = {
                "verdicts": self._progress(),
                "server_mib": round(resident_mib(pid), 1),
                "server_files": open_files(pid),
            }
            self.facts["lives"][-1].append(sample)
            print(" ".join(f"{key} {value}" for key, value in sample.items()), flush=True)

    def result(self) -> dict[str, Any]:
        """Return what the phase came to, with its faults."""
        done, batches = self.done(), self.batches()
        found = {"phase": self._phase.name, "wanted": self._phase.count, **self.facts}
        del found["port"]
        if len(done) < len(batches):
            return found | {"finished": False, "batches": len(done), "of": len(batches)}
        expected = self._phase.expected(self._folder)
        statuses: Counter[str] = Counter()
        unequal = []
        for name, numbers in batches.items():
            for number, given in zip(numbers, done[name]["verdicts"], strict=True):
                statuses[given[0]] += 1
                if given != expected[number] and given[0] != "unavailable":
                    unequal.append([number, given, expected[number]])
        stored = _stored(self._folder / "state" / "state.sqlite3")
        left = sorted(command(each) for each in naming(self._folder, processes()))
        found |= {
            "finished": True,
            "verdicts": sum(statuses.values()),
            "statuses": dict(statuses),
            "unequal": unequal[:20],
            "stored": stored,
            "batch_s": statistics.median(row["s"] for row in done.values()),
            "left": left[:20],
        }
        return found | {"faults": _faults(found)}


def _stored(path: Path) -> dict[str, int]:
    """Return the numbers of jobs, of final verdicts, and of jobs with more or fewer than one."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        query = "SELECT COUNT(*) FROM events WHERE kind = 'verdict' GROUP BY job"
        finals = [row[0] for row in db.execute(query)]
        jobs, done = db.execute("SELECT COUNT(*), SUM(state = 'done') FROM jobs").fetchone()
    return {"jobs": jobs, "done": done, "finals": len(finals), "most_finals": max(finals)}


def _faults(found: dict[str, Any]) -> list[str]:
    """Return everything that ought not to be."""
    wanted, stored, faults = found["wanted"], found["stored"], []
    if found["verdicts"] != wanted or found["unequal"]:
        faults.append(f"{found['verdicts']} verdicts of {wanted}; unequal: {found['unequal']}")
    if stored != {"jobs": wanted, "done": wanted, "finals": wanted, "most_finals": 1}:
        faults.append(f"the state folder holds {stored}, and {wanted} jobs were sent")
    if (gone := found["statuses"].get("unavailable", 0)) > MOST_UNAVAILABLE * wanted:
        faults.append(f"{gone} verdicts are unavailable")
    for number, life in enumerate(found["lives"]):
        if len(life) >= 5:
            early, late = life[len(life) // 5], life[-1]
            if late["server_mib"] > early["server_mib"] + GROWTH_MIB:
                faults.append(f"server {number} grew: {early} {late}")
            if late["server_files"] > MOST_FILES:
                faults.append(f"server {number} has {late['server_files']} files open")
    if found["left"]:
        faults.append(f"processes are left: {found['left']}")
    return faults


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def main() -> int:
    """Run the phases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--scripted", type=int, default=9500, help="scripted verdicts; 0 for none")
    parser.add_argument("--real", type=int, default=500, help="verdicts of the CPU; 0 for none")
    parser.add_argument("--server-kills", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--resume", action="store_true", help="go on in the folder")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.folder.exists() and any(options.folder.iterdir()) and not options.resume:
        parser.error(f"{options.folder} is not empty; give --resume to go on in it")
    until = min(time.time() + options.seconds, 1e12)
    phases = [scripted_phase(options.scripted)] if options.scripted else []
    phases += [real_phase(options.real)] if options.real else []
    data: dict[str, Any] = {"machine": machine("torch", "triton", "fastapi", "uvicorn")}
    results = []
    for phase in phases:
        soak = Soak(phase, options.folder / phase.name, options.server_kills, until)
        if len(soak.done()) < len(soak.batches()) and time.time() < until:
            soak.run()
        results.append(soak.result())
    data["phases"] = results
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(data, indent=1) + "\n")
    for found in results:
        shown = {name: value for name, value in found.items() if name != "lives"}
        print(json.dumps(shown), flush=True)
    if not all(found["finished"] for found in results):
        return 3
    return int(any(found["faults"] for found in results))


if __name__ == "__main__":
    sys.exit(main())
