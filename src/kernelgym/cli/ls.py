"""``kernelgym ls``: the suites, or the problems of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelgym.cli.console import print_table, print_text
from kernelgym.cli.options import Command
from kernelgym.rulesets import precise_rules


@dataclass(frozen=True, kw_only=True)
class LsCommand(Command):
    """List the suites with their environment ids, or the problems of one suite."""

    suite: str | None = None
    """Suite: KernelBench, Synthetic, or the path of a folder of problem files."""
    level: int | None = None
    """Level of the problems (with --suite); all if not given."""
    split: str | None = None
    """Split of the problems, such as train, test or representative (with --suite)."""
    sizes: str = "full"
    """Sizes of KernelBench's problems: full, or small for a laptop (with --suite)."""
    exclude_degenerate: bool = False
    """Leave out problems that a worthless kernel is known to pass (with --suite)."""
    ruleset: str = "strict"
    """Rules by which a problem counts as degenerate: strict or kernelbench."""
    precision: str = ""
    """Precision in place of the ruleset's: own (the problem's), fp32, fp16 or bf16."""
    device: str = "cpu"
    """Device whose `kernelgym lint` results count."""

    def run(self) -> int:
        """Print the table; return the exit code."""
        from kernelgym.errors import UsageError
        from kernelgym.pretrained import missing_models
        from kernelgym.suites import suite
        from kernelgym.suites.base import non_empty
        from kernelgym.suites.kernelbench_small import SMALL
        from kernelgym.suites.known_hygiene import known_hygiene

        rules = precise_rules(self.ruleset, self.precision)
        if self.suite is None:
            chosen = self.level is not None or self.split is not None or self.sizes != "full"
            if chosen or self.exclude_degenerate:
                raise UsageError(
                    "--level, --split, --sizes and --exclude-degenerate choose problems of one "
                    "suite; name it with --suite (Synthetic, KernelBench or a folder)"
                )
            return _suites()
        listed = suite(self.suite, sizes=self.sizes)
        known = {
            problem: known_hygiene(problem, rules, self.device)
            for problem in listed.problems(self.level, split=self.split)
        }
        forms = {problem.id for problem in known}
        if self.exclude_degenerate:
            known = {problem: found for problem, found in known.items() if found.passes}
            non_empty(known, self.suite, exclude_degenerate=True, level=self.level)
        rows = ((p.id, p.name, p.family, found.summary) for p, found in known.items())
        print_table(("id", "name", "family", "hygiene"), rows)
        if self.sizes == "small":
            full = suite(self.suite).problems(self.level, split=self.split)
            missing = [p.id for p in full if p.id + SMALL not in forms]
            if missing:
                print_text(
                    f"{len(missing)} problems have no small form, and `kernelgym show ID --sizes "
                    f"small` says why: {', '.join(missing)}",
                    "dim",
                )
        if missing := [p.id for p in known if missing_models(p)]:
            print_text(
                f"{len(missing)} problems load pretrained models that are not on this machine; "
                f"`kernelgym fetch {self.suite}` downloads them (needs a network)",
                "dim",
            )
        if self.suite == "Synthetic":
            print_text(
                "The suite is endless: any number from 1 exists, and @seed3 or @seed3-gpu after "
                "it names another seed or size.",
                "dim",
            )
        return 0


def _suites() -> int:
    from kernelgym import ENV_IDS
    from kernelgym.errors import UsageError
    from kernelgym.suites import SUITES, suite

    rows: list[Sequence[object]] = []
    notes = []
    for name in SUITES:
        ids = [env_id for env_id in ENV_IDS if env_id.startswith(f"{name}-")]
        try:
            found = suite(name)
            for level in found.levels:
                count = len(found.problems(level))
                chosen = [env_id for env_id in ids if f"-L{level}-" in env_id]
                rows.append((name, level, count, ", ".join(found.splits), ", ".join(chosen)))
        except UsageError as error:
            rows.append((name, "-", "-", "not available (see below)", ", ".join(ids)))
            notes.append(str(error))
    print_table(("suite", "level", "problems", "splits", "environments"), rows)
    print_text(
        "`kernelgym ls --suite NAME` lists problems; a folder of problem files is a suite too.",
        "dim",
    )
    for note in notes:
        print_text(note, "yellow")
    return 0
