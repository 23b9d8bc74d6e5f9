"""Writers other than models: a command of the user, and the answers of another search.

Contract of `CommandPolicy`: the kernel to change is the command's standard input, and its standard
output is the answer: a patch, or a whole module, with or without the lines MOVE, GAIN and SUMMARY.
The environment has ``KERNELGYM_MOVE``, ``KERNELGYM_RECIPE``, ``KERNELGYM_LANGUAGE``,
``KERNELGYM_FAILURE`` and ``KERNELGYM_PROMPT``, the path of a file with the whole prompt. A command
that fails, or that takes longer than its time, gives no answer; it is ended with its process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgym import UsageError
from kernelgym.benchmark.run.generations import AnswerRequest, Generation
from kernelgym.benchmark.run.policies import AnswerMissing, EvalPolicy, ProviderFailure
from kernelgym.prompts.observer import render
from kernelgym_train.mcgs.writing.writer import WriterRequest

ANSWERS = "answers"
"""Name of the folder of a search's requests and answers, one file each."""
_MOST_BYTES = 4 << 20
_MOST_SAID = 300
_BLOCK = 1 << 16  # bytes


class CommandPolicy(EvalPolicy):
    """Policy that runs a command for each answer.

    Args:
        command: The command, as in a shell, but without a shell's own syntax.
        timeout_s: Seconds that the command may take.

    Raises:
        UsageError: If there is no command, or it cannot be split into words.
    """

    def __init__(self, command: str, timeout_s: float = 600.0) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"proposer=command:{command}: {error}") from None
        if not self._words:
            raise UsageError("proposer=command: needs a command, as in command:./propose.py")
        self._timeout_s = timeout_s

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON data that decides the answers: the command."""
        return {"kind": "command", "model": self._words[0], "command": self._words}

    async def check(self) -> None:
        """Check that the command exists.

        Raises:
            UsageError: If it is not.
        """
        import shutil

        if shutil.which(self._words[0]) is None:
            raise UsageError(
                f"proposer=command: there is no command {self._words[0]!r}; give its path, and "
                "make the file executable"
            )

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return the text that the command prints as its answer.

        Raises:
            ProviderFailure: If the command fails, hangs, or prints no text.
        """
        assert isinstance(asked, WriterRequest)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kernelgym-prompt-") as folder:
            prompt = Path(folder) / "prompt.md"
            prompt.write_text(render(asked.messages), "utf-8")
            # A NUL, as an answer before may hold, cannot be in an environment.
            facts = {
                f"KERNELGYM_{name}": value.replace("\0", "\N{REPLACEMENT CHARACTER}")
                for name, value in asked.facts.items()
            }
            env = {**os.environ, **facts, "KERNELGYM_PROMPT": str(prompt)}
            text = await self._run(asked.parent.source, env)
        return Generation(text, model=self._words[0], latency_s=time.monotonic() - began)

    async def _run(self, source: str, env: Mapping[str, str]) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            raise ProviderFailure(f"the command cannot be run: {error}") from None
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await _talk(process, source.encode())
        except TimeoutError:
            raise ProviderFailure(
                f"the command gave no answer within {self._timeout_s:g} s"
            ) from None
        finally:
            # What the command has started may live on, and hold its output open.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            # Else wait() waits for the end of output that is not read.
            process._transport.close()  # type: ignore[attr-defined]
            await process.wait()
        if process.returncode:
            said = " ".join(err.decode("utf-8", "replace").split())[-_MOST_SAID:]
            raise ProviderFailure(f"the command ended with {process.returncode}: {said}")
        return out.decode("utf-8", "replace")


async def _talk(process: asyncio.subprocess.Process, given: bytes) -> tuple[bytes, bytes]:
    """Return what a process prints for an input, and the end of what it prints as errors.

    Raises:
        ProviderFailure: If it prints more than fits in an answer; the rest is not read.
    """
    assert process.stdin and process.stdout and process.stderr
    errors = asyncio.create_task(_tail(process.stderr))
    feeding = asyncio.create_task(_feed(process.stdin, given))
    try:
        out = bytearray()
        while block := await process.stdout.read(_BLOCK):
            out += block
            if len(out) > _MOST_BYTES:
                raise ProviderFailure(f"the command printed more than {_MOST_BYTES >> 20} MiB")
        await feeding
        err = await errors
        await process.wait()
        return bytes(out), err
    finally:
        feeding.cancel()
        errors.cancel()


async def _feed(writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read all
        writer.write(data)
        await writer.drain()
    writer.close()


async def _tail(reader: asyncio.StreamReader) -> bytes:
    """Return the last bytes of a stream."""
    tail = b""
    while block := await reader.read(_BLOCK):
        tail = (tail + block)[-_BLOCK:]
    return tail


class SearchReplayPolicy(EvalPolicy):
    """Policy that gives the answers of another search, by the numbers of its requests.

    Args:
        folder: Folder of the search's results, or of one kernel in it.

    Raises:
        UsageError: If it holds no answers of a search, or those of several kernels.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        found = sorted({*folder.glob(f"{ANSWERS}/*.json"), *folder.glob(f"kernels/*/{ANSWERS}/*")})
        if not found:
            raise UsageError(
                f"proposer=replay:{folder}: it holds no answers of a search; give a folder with "
                f"kernels/NAME/{ANSWERS}"
            )
        if len({path.parent for path in found}) > 1:
            raise UsageError(
                f"proposer=replay:{folder}: it holds answers for several kernels; give the folder "
                "of one, such as "
                f"{found[0].parent.parent}"
            )
        self._paths = {path.stem: path for path in found}

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON data that decides the answers: the folder."""
        return {"kind": "replay", "model": "replay", "run": str(self._folder)}

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return the recorded answer with the request's number.

        Raises:
            AnswerMissing: If there is none.
            UsageError: If its file is damaged.
        """
        path = self._paths.get(f"{asked.sample:04d}")
        if path is None:
            raise AnswerMissing(f"the replayed search has no answer {asked.sample}")
        try:
            row = json.loads(path.read_text("utf-8"))
            if row["answer"] is None:
                raise AnswerMissing(f"the replayed search got no answer {asked.sample}")
            return dataclasses.replace(Generation.from_dict(row["answer"]), usd=0.0)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not an answer of a search: {error}") from None
