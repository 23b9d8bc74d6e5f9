"""``kernelgym export-tasks``: problems as tasks that other agents' harnesses read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelgym.cli.options import JudgingOptions
from kernelgym.errors import UsageError
from kernelgym.languages import check_language
from kernelgym.machine import installed_version
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.types import Problem


@dataclass(frozen=True, kw_only=True)
class ExportTasksCommand(JudgingOptions):
    """Write problems as tasks in Harbor's format, one folder each.

    A task has an instruction, an image for the agent, a test script that has the kernel judged in
    an image of its own, and a solution where the suite writes right kernels. Problems that are
    known to be degenerate are left out.
    """

    suite: str = "Synthetic"
    """Suite: KernelBench, Synthetic, or the path of a folder of problem files."""
    level: int | None = None
    """Level of the problems; all if not given."""
    split: str | None = None
    """Split of the problems, such as heldout of Synthetic or representative of KernelBench."""
    limit: int = 50
    """Largest number of tasks; the suite's first problems are taken."""
    seed: int = 0
    """Seed of the problems of Synthetic."""
    format: Literal["harbor"] = "harbor"
    """Format of the tasks."""
    out: str = ""
    """Folder of the tasks; existing tasks of the same names are overwritten."""
    install: str = ""
    """Requirement by which pip installs kernelgym in the images, such as the address of a wheel;
    kernelgym of this version if not given."""

    def run(self) -> int:
        """Write the tasks; return the exit code."""
        from kernelgym.suites.known_hygiene import known_hygiene
        from kernelgym.workspace.harbor_tasks import TaskSettings, write_task

        if not self.out:
            raise UsageError("`kernelgym export-tasks` needs --out DIR, the folder of the tasks")
        if self.limit < 1:
            raise UsageError(f"--limit must be at least 1, got {self.limit}")
        if self.seed and self.suite != "Synthetic":
            raise UsageError(
                f"--seed draws problems of the suite Synthetic and has no use with {self.suite!r}"
            )
        check_language(self.language, self.device)
        rules = find_ruleset(self.ruleset)
        settings = TaskSettings(
            self.language,
            self.device,
            rules,
            self.install or f"kernelgym[serve]=={installed_version('kernelgym')}",
            self.split or "",
        )
        problems = [
            problem
            for problem in self._problems()
            if known_hygiene(problem, rules, self.device).passes
        ][: self.limit]
        for problem in problems:
            write_task(Path(self.out), problem, settings)
        print(f"{len(problems)} tasks in the format of Harbor written to {self.out}")
        return 0

    def _problems(self) -> tuple[Problem, ...]:
        """Return the problems of the suite; of Synthetic, which is endless, as many as needed."""
        from kernelgym.suites import suite

        if self.suite != "Synthetic":
            return suite(self.suite, sizes=self.sizes).problems(self.level, split=self.split)
        listed = 100
        while True:
            found = suite("Synthetic", seed=self.seed, per_level=listed, sizes=self.sizes)
            problems = found.problems(self.level, split=self.split)
            if len(problems) >= self.limit:
                return problems
            listed *= 2
