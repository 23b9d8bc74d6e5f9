"""Forking into namespaces: what the child is, by either way there."""

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
if "refused" in sys.argv:
    namespaces._CLONE3 = 100_000  # no system call has this number
if "alone" in sys.argv:
    namespaces._fork_twice = None  # must not be needed
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
pid = namespaces.fork("library" in sys.argv)
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


WAYS = ["alone", "several", "library", "refused"]


@pytest.mark.parametrize("way", WAYS)
def test_the_child_is_the_first_process_of_namespaces_of_its_own(way):
    found = _run(way)
    child = found["child"]
    assert found["code"] == 7, child
    assert (child["pid"], child["parent"], child["first"]) == (1, 0, 1)
    assert found["its_parent"] == found["we"]
    assert all(child["links"][name] != ours for name, ours in found["ours"].items())
    assert child["ids"] == found["ids"]


@pytest.mark.parametrize("way", WAYS)
def test_the_child_can_do_what_a_forked_process_can(way):
    child = _run(way)["child"]
    assert child["threads"] == [0, 1, 2]
    assert child["below"] == 3


@pytest.mark.parametrize("way", WAYS)
def test_pythons_own_hooks_around_a_fork_are_called(way):
    found = _run(way)
    assert found["child"]["told"][0] == "before" and found["child"]["told"][-1] == "child"
    assert found["told"][-2:] == ["before", "parent"]


def test_a_host_that_refuses_is_told_of_in_the_parent(monkeypatch):
    def refuse():
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(namespaces, "enter", refuse)
    with pytest.raises(OSError, match="Operation not permitted") as told:
        namespaces.fork(by_library=True)
    assert told.value.errno == 1


def _run(way):
    program = [sys.executable, "-c", PROGRAM, str(Path(namespaces.__file__)), way]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
