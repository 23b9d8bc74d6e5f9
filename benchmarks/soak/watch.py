"""What a run of the judge leaves behind: processes, files, shared memory, memory of the device.

A process counts as the judge's if it is below this one, or if its environment names the run's own
folder, wherever it hangs in the tree by then. Looks only; ends nothing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

_SAMPLE_S = 0.25
_GONE_S = 5.0
_DEVICE_GONE_S = 15.0
_DEVICE_SLACK_MIB = 64

Process = tuple[int, str]
"""Process id and start time, which together are never given twice."""


def processes() -> dict[Process, int]:
    """Return every living process with its parent's id."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    found[int(entry), fields[19]] = int(fields[1])
    return found


def below(root: int, living: dict[Process, int]) -> set[Process]:
    """Return the living descendants of a process."""
    found: set[Process] = set()
    parents = {root}
    while parents:
        children = {key for key, parent in living.items() if parent in parents} - found
        found |= children
        parents = {pid for pid, _ in children}
    return found


def naming(folder: Path, living: dict[Process, int]) -> set[Process]:
    """Return the processes whose environment names a folder."""
    found = set()
    for key in living:
        with contextlib.suppress(OSError):
            if str(folder).encode() in Path(f"/proc/{key[0]}/environ").read_bytes():
                found.add(key)
    return found


def command(process: Process) -> str:
    """Return a process's command line."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{process[0]}/cmdline").read_bytes().replace(b"\0", b" ")
        return f"{process[0]} {text.decode(errors='replace')[:160]}"
    return str(process[0])


def resident_mib(pid: int) -> float:
    """Return a process's resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def open_files(pid: int) -> int:
    """Return how many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def shared_memory() -> set[str]:
    """Return names of POSIX and ids of System V shared memory."""
    found = set()
    with contextlib.suppress(OSError):
        found |= {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    with contextlib.suppress(OSError):
        lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        found |= {f"sysv {line.split()[1]}" for line in lines}
    return found


def files_under(folder: Path) -> set[str]:
    """Return everything in a folder, however deep."""
    found = set()
    for where, folders, files in os.walk(folder):
        found |= {os.path.join(where, name) for name in (*folders, *files)}
    return found


def device_used_mib(device: str) -> float:
    """Return how much memory of a device is in use, by whomever; asked of another process."""
    index = device.partition(":")[2] or "0"
    query = ["nvidia-smi", f"--id={index}", "--query-gpu=memory.used", "--format=csv,noheader"]
    with contextlib.suppress(OSError, ValueError, IndexError):
        answer = subprocess.run(query, capture_output=True, text=True, timeout=60)
        return float(answer.stdout.split()[0])
    code = "import sys, torch; f, t = torch.cuda.mem_get_info(sys.argv[1]); print((t - f) / 2**20)"
    answer = subprocess.run(
        [sys.executable, "-c", code, device], capture_output=True, text=True, timeout=120
    )
    return float(answer.stdout)


@dataclass
class Watch:
    """Remembers how things stood, follows descendants, and says what is left at the end.

    Args:
        folder: The run's own folder; holds everything its judge writes.
        device: The device it judges on.
    """

    folder: Path
    device: str
    seen: set[Process] = field(default_factory=set)
    peak: int = 0

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._shared = shared_memory()
        self._used_mib = self._device_mib()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._before = below(os.getpid(), processes())
        self.fds = open_files(os.getpid())
        self._thread.start()

    def _device_mib(self) -> float:
        return 0.0 if self.device == "cpu" else device_used_mib(self.device)

    def _follow(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            found = below(os.getpid(), processes())
            self.peak = max(self.peak, len(found))
            self.seen |= found

    def left(self, scratch: Path, temporary: Path) -> dict[str, list[str]]:
        """Return what is left, by kind, once the judge is closed.

        Args:
            scratch: Where candidates were put; nothing may remain.
            temporary: The run's folder for temporary files; nothing may remain.
        """
        self._ended.set()
        self._thread.join()
        deadline = time.monotonic() + _GONE_S
        while (remaining := self._remaining()) and time.monotonic() < deadline:
            time.sleep(0.1)
        found = {
            "processes": sorted(map(command, remaining)),
            "files": sorted(files_under(scratch) | files_under(temporary)),
            "shared_memory": sorted(shared_memory() - self._shared),
            "open_files": [],
            "device_memory": [],
        }
        if (now := open_files(os.getpid())) > self.fds:
            found["open_files"] = [f"{self.fds} before, {now} after"]
        deadline = time.monotonic() + _DEVICE_GONE_S
        while (used := self._device_mib()) > self._used_mib + _DEVICE_SLACK_MIB:
            if time.monotonic() > deadline:
                found["device_memory"] = [f"{self._used_mib:.0f} MiB before, {used:.0f} after"]
                break
            time.sleep(1.0)
        return found

    def _remaining(self) -> set[Process]:
        living = processes()
        known = (self.seen - self._before) & living.keys()
        return known | (below(os.getpid(), living) - self._before) | self._named(living)

    def _named(self, living: dict[Process, int]) -> set[Process]:
        return {key for key in naming(self.folder, living) if key[0] != os.getpid()}
