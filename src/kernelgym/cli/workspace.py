"""``kernelgym workspace`` and ``kernelgym mcp``: a problem for a coding agent, with four tools."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from kernelgym.cli import judging
from kernelgym.cli.console import say
from kernelgym.cli.options import JudgingOptions, MemoryOption
from kernelgym.errors import UsageError
from kernelgym.languages import check_language
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import Evaluator

if TYPE_CHECKING:
    from kernelgym.workspace.session import ToolSession


@dataclass(frozen=True, kw_only=True)
class AgentOptions(MemoryOption, JudgingOptions):
    """Options shared by the commands that serve a judge to a coding agent."""

    problem: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PROBLEM")] = ""
    """Id of the problem, such as KernelBench/L1/40, or the path of a problem file."""
    budget: int = 30
    """Number of calls of check, time and profile; submit is not counted."""
    record: str = ""
    """JSONL file to which the trajectory is appended; outside of the agent's folder."""
    evaluator: str = ""
    """Address of a verdict service that judges in place of this machine; its key comes from the
    environment variable KERNELGYM_API_KEY."""

    @contextlib.contextmanager
    def session(self, record: Path) -> Iterator[ToolSession]:
        """Open a session with its judge; both are closed at the end of the block."""
        from kernelgym.workspace.session import ToolSession

        entry = check_language(self.language, self.device)
        if not self.evaluator:  # a service has tools of its own
            judging.check_tools(self.language, self.device)
        problem = judging.problem_at(self.problem, sizes=self.sizes)
        rules = judging.rules_at(self.problem, find_ruleset(self.ruleset))
        with contextlib.ExitStack() as stack:

            def opened(timing: bool) -> Evaluator:
                return stack.enter_context(
                    judging.open_evaluator(
                        self.device, rules, 1, timing, self.memory, address=self.evaluator
                    )
                )

            session = ToolSession(
                problem,
                opened(timing=False),
                opened(timing=True) if entry.is_timed(self.device) else None,
                language=self.language,
                budget=self.budget,
                record=record,
            )
            stack.callback(session.close)
            yield session

    def check_problem(self, command: str) -> None:
        """Refuse a command without a problem.

        Raises:
            UsageError: If there is none.
        """
        if not self.problem:
            raise UsageError(
                f"`kernelgym {command}` needs a PROBLEM, as in `kernelgym {command} "
                "KernelBench/L1/40`"
            )


@dataclass(frozen=True, kw_only=True)
class WorkspaceCommand(AgentOptions):
    """Make a folder in which a coding agent works on a problem, and judge what it sends.

    The folder holds problem.py, kernel.py, TASK.md, SKILL.md and kernelgym-tools, by which the
    agent checks, times, profiles and submits kernel.py. The judge is this command: it runs until a
    kernel is submitted, or until Ctrl-C. Exit code 0 if a kernel was submitted.
    """

    out: str = ""
    """Folder of the workspace; a kernel.py in it is kept."""

    def run(self) -> int:
        """Make the folder and serve its tools; return the exit code."""
        self.check_problem("workspace")
        if not self.out:
            raise UsageError("`kernelgym workspace` needs --out DIR, the folder of the workspace")
        folder = Path(self.out)
        record = Path(self.record or f"{folder.absolute()}-trajectory.jsonl")
        if record.absolute().is_relative_to(folder.absolute()):
            raise UsageError(
                f"--record {record} lies in the agent's folder {folder}; give a file outside of it"
            )
        _need("workspace", "serve", "fastapi", "uvicorn")
        from kernelgym.serve.keys import KeyRing, Tenant, add_key
        from kernelgym.workspace.folder import write_folder
        from kernelgym.workspace.server import serve_tools

        with (
            self.session(record) as session,
            tempfile.TemporaryDirectory(prefix="kernelgym-workspace-") as private,
        ):
            keys = Path(private) / "keys.yaml"
            key = add_key(keys, Tenant(name="agent"))

            def started(url: str) -> None:
                write_folder(folder, session, url, key)
                say(f"the workspace is ready: {folder} (judge at {url})")

            serve_tools(session, KeyRing(keys), started)
            turn = session.submission
            if turn is None:
                return 1
            verdict, speed = turn.verdict, ""
            if verdict.timed:
                speed = f", speedup {verdict.speedup:.3f} (at least {verdict.speedup_low:.3f})"
            print(
                f"{session.problem.id}: {verdict.status}{speed}, score {turn.score.total:.3f}, "
                f"trajectory in {record}"
            )
            return 0


@dataclass(frozen=True, kw_only=True)
class McpCommand(AgentOptions):
    """Serve a problem's tools to one agent by the Model Context Protocol, over standard streams.

    The tools are check, time, profile and submit; the resources are the problem, the feedback so
    far and the budget. The client starts this command, and it ends with the client.
    """

    def run(self) -> int:
        """Serve the tools; return the exit code."""
        self.check_problem("mcp")
        if not self.record:
            raise UsageError(
                "`kernelgym mcp` needs --record FILE, to which the trajectory is appended; give "
                "one outside of the agent's folder"
            )
        _need("mcp", "agents", "mcp", "mcp_types")
        import asyncio

        from kernelgym.workspace.mcp_server import serve_stdio

        with self.session(Path(self.record)) as session:
            asyncio.run(serve_stdio(session))
        return 0


def _need(command: str, extra: str, *modules: str) -> None:
    """Refuse a command of the workspace whose packages are not installed."""
    from importlib.util import find_spec

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"`kernelgym {command}` needs {' and '.join(missing)}: pip install 'kernelgym[{extra}]'"
        )
