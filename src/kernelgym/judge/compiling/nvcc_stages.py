"""Runs nvcc's stages for device and host at the same time; a program that runs in the sandbox.

``python nvcc_stages.py nvcc ARGUMENT...`` does what ``nvcc ARGUMENT...`` does. nvcc runs one
program after another: the host's front end (cudafe++), the device's compiler (cicc, ptxas) and the
host's compiler. Each of them reads the headers anew. The first two share nothing but a name of the
unit, which both write into their output, so this program runs them at the same time.

Contract:

- the commands are those that ``nvcc --dryrun`` prints;
- their output comes in nvcc's order, up to the first command that fails;
- this file imports nothing of this package, since it is started by its path.

Does not cover compilations whose commands are not in the expected order: nvcc runs those itself.

Benchmark: ``python -m benchmarks.judge.speed_paths --part cuda``, results in
``benchmarks/results/speed_paths.json``. One after another, they make a build 1.49 times as long on
16 cores beside an H100 (11.2 against 7.5 s), and 1.14 times on two cores.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import subprocess
import sys
import threading
import zlib
from dataclasses import dataclass

_GENERATES_NAME = "--gen_module_id_file "
_NAME_FILE = re.compile(r'--module_id_file_name "([^"]+)"')
_HOST_TEXT = re.compile(r'--gen_c_file_name "([^"]+)"')
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)")
_FRONT, _DEVICE = "cudafe++ ", "cicc"


@dataclass(frozen=True, slots=True)
class NvccStages:
    """The shell commands of one compilation."""

    environment: dict[str, str]
    host: tuple[str, ...]
    device: tuple[str, ...]
    last: str
    """Command that compiles the output of both stages on the host."""
    name_file: str
    """Path of the file that must hold the unit's name before either stage starts."""


def read_stages(said: str) -> NvccStages | None:
    """Return the stages in the output of ``nvcc --dryrun``.

    None if the commands are not those expected.
    """
    environment: dict[str, str] = {}
    commands: list[str] = []
    for line in said.splitlines():
        if not line.startswith("#$ "):
            return None
        command = line[3:].strip()
        assignment = _ASSIGNMENT.fullmatch(command)
        if assignment and not commands:
            environment[assignment[1]] = assignment[2]
        elif not command.startswith("rm "):  # removes files of an earlier run; there are none here
            commands.append(command)
    if len(commands) < 4 or not commands[1].startswith(_FRONT):
        return None
    preprocess, front, *device, last = commands
    text, name = _HOST_TEXT.search(front), _NAME_FILE.search(front)
    if not (text and name and _GENERATES_NAME in front):
        return None
    compiles = [command for command in device if _DEVICE in command.partition(" ")[0]]
    as_expected = (
        not any(command.startswith(_FRONT) for command in device)
        and compiles
        and all(name[0] in command for command in compiles)
        and not any(text[1] in command for command in (preprocess, *device))
        and f'"{text[1]}"' in last
    )
    if not as_expected:
        return None
    host = (preprocess, front.replace(_GENERATES_NAME, ""))
    return NvccStages(environment, host, tuple(device), last, name[1])


class _Chain(threading.Thread):
    """Commands that run one after another until one fails."""

    def __init__(self, commands: tuple[str, ...], environment: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.said: list[bytes] = []
        self.status = 0
        self._commands, self._environment = commands, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._stopped = threading.Lock(), False

    def run(self) -> None:
        """Run the commands, one after another."""
        for command in self._commands:
            with self._lock:
                if self._stopped:
                    return
                process = self._process = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec {command}"],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
            self.said.append(process.communicate()[0])
            if (status := process.returncode) < 0:
                tool = os.path.basename(shlex.split(command)[0])
                self.said.append(f"nvcc error   : '{tool}' died due to signal {-status}\n".encode())
                status = 128 - status
            if status:
                self.status = status
                return

    def stop(self) -> None:
        """End the running command and start no other."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
        self.join()


def run_stages(stages: NvccStages, name: str) -> tuple[bytes, int]:
    """Run nvcc's stages; return their output and nvcc's exit status.

    Args:
        stages: From `read_stages`.
        name: A name for the unit that no other unit has.
    """
    with open(stages.name_file, "w") as file:
        file.write(name)
    environment = {**os.environ, **stages.environment}
    host, device = _Chain(stages.host, environment), _Chain(stages.device, environment)
    host.start()
    device.start()
    host.join()
    if host.status:  # the device's front end would print the same errors again
        device.stop()
        return b"".join(host.said), host.status
    device.join()
    said = [*host.said, *device.said]
    if device.status:
        return b"".join(said), device.status
    last = _Chain((stages.last,), environment)
    last.run()
    return b"".join([*said, *last.said]), last.status


def main(command: list[str]) -> int:
    """Compile like `command`, nvcc with its arguments; return its exit status."""
    asked = [command[0], "--dryrun", *command[1:]]
    answer = subprocess.run(asked, capture_output=True, text=True, errors="replace", check=False)
    stages = read_stages(answer.stderr) if answer.returncode == 0 and not answer.stdout else None
    if stages is None:
        os.execv(command[0], command)
    content = 0
    for path in sorted(glob.glob("*.cu")):
        with open(path, "rb") as file:
            content = zlib.crc32(file.read(), content)
    said, status = run_stages(stages, f"_{content:08x}_4_unit_{os.getpid():08x}")
    sys.stdout.buffer.write(said)
    sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
