"""Forking into namespaces: what the child is, with other threads in its parent and without."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgym.judge.untrusted.sandbox import namespaces

PROGRAM = """
import ctypes, importlib.util, json, os, sys, threading
spec = importlib.util.spec_from_file_location("namespaces", sys.argv[1])
namespaces = importlib.util.module_from_spec(spec)
spec.loader.exec_module(namespaces)
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans come to us
stop = threading.Event()
if "several" in sys.argv:
    threading.Thread(target=stop.wait).start()
ids, outside = (os.geteuid(), os.getegid()), os.getpid()
told = []
os.register_at_fork(
    before=lambda: told.append("before"),
    after_in_child=lambda: told.append("child"),
    after_in_parent=lambda: told.append("parent"),
)
read, write = os.pipe()
pid = namespaces.fork()
if pid == 0:
    try:
        called = list(told)
        namespaces.map_ids(*ids)
        seen = []
        started = [threading.Thread(target=seen.append, args=(n,)) for n in range(3)]
        for each in started:
            each.start()
        for each in started:
            each.join()
        below = os.fork()
        if below == 0:
            os._exit(3)
        said = {
            "pid": os.getpid(), "parent": os.getppid(), "ids": [os.geteuid(), os.getegid()],
            "first": threading.get_native_id(), "threads": sorted(seen), "told": called,
            "below": os.waitstatus_to_exitcode(os.waitpid(below, 0)[1]),
            "links": {n: os.readlink(f"/proc/self/ns/{n}") for n in ("net", "ipc", "mnt", "user")},
        }
        os.write(write, json.dumps(said).encode())
        os._exit(7)
    except BaseException as error:
        os.write(write, json.dumps({"error": repr(error)}).encode())
        os._exit(8)
os.close(write)
said = json.loads(os.read(read, 1 << 16))
with open(f"/proc/{pid}/status") as file:
    of = [line.split()[1] for line in file if line.startswith("PPid:")]
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
stop.set()
ours = {n: os.readlink(f"/proc/self/ns/{n}") for n in ("net", "ipc", "mnt", "user")}
print(json.dumps({
    "child": said, "code": code, "its_parent": int(of[0]), "we": outside, "ours": ours,
    "ids": ids, "told": told,
}))
"""


THREADS = ["alone", "several"]


@pytest.mark.parametrize("threads", THREADS)
def test_child_is_first_in_its_own_namespaces(threads):
    found = _run(threads)
    child = found["child"]
    assert found["code"] == 7, child
    assert (child["pid"], child["parent"], child["first"]) == (1, 0, 1)
    assert found["its_parent"] == found["we"]
    assert all(child["links"][name] != ours for name, ours in found["ours"].items())
    assert child["ids"] == found["ids"]


@pytest.mark.parametrize("threads", THREADS)
def test_child_can_start_threads_and_processes(threads):
    child = _run(threads)["child"]
    assert child["threads"] == [0, 1, 2]
    assert child["below"] == 3


@pytest.mark.parametrize("threads", THREADS)
def test_fork_calls_pythons_own_hooks(threads):
    found = _run(threads)
    assert found["child"]["told"][0] == "before" and found["child"]["told"][-1] == "child"
    assert found["told"][-2:] == ["before", "parent"]


def test_refusal_by_the_host_raises_in_the_parent(monkeypatch):
    def refuse():
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(namespaces, "enter", refuse)
    with pytest.raises(OSError, match="Operation not permitted") as told:
        namespaces.fork()
    assert told.value.errno == 1


def _run(threads):
    program = [sys.executable, "-c", PROGRAM, str(Path(namespaces.__file__)), threads]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
