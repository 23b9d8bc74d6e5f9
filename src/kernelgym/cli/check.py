"""``kernelgym check``: judge one kernel, or a file of many (`kernelgym.cli.batch`)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated

import tyro

from kernelgym.cli import judging
from kernelgym.cli.console import print_text, print_verdict
from kernelgym.cli.options import JudgingOptions, MemoryOption
from kernelgym.errors import UsageError
from kernelgym.rulesets import precise_rules
from kernelgym.rulesets import ruleset as find_ruleset
from kernelgym.suites.known_memory import check_fits
from kernelgym.types import Kernel, Status, Verdict


@dataclass(frozen=True, kw_only=True)
class CheckCommand(MemoryOption, JudgingOptions):
    """Judge a kernel: is it correct, and how much faster than the reference?

    Exit code 0 if the kernel is correct and 1 if its verdict is anything else. With --batch, 0
    once every job has its verdict, whatever the verdicts are.
    """

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = ""
    """Path of the kernel, a Python module that defines ModelNew; - reads standard input."""
    problem: str = ""
    """Id of the problem, such as Synthetic/L1/2, or the path of a problem file. A kernel spec
    (.json) stands for the problems of all its shapes; if FILE is a spec, also for its kernel."""
    json: bool = False
    """Print the verdict as one JSON object and nothing else."""
    reply: bool = False
    """Read the kernel from FILE as from a model's whole reply."""
    replay: str = ""
    """Seed of an earlier verdict: judge with the same weights and inputs."""
    precision: str = ""
    """Precision in place of the ruleset's: own (the problem's), fp32, fp16 or bf16."""
    no_timing: bool = False
    """Judge correctness only."""
    batch: str = ""
    """JSONL file of jobs to judge instead of FILE: rows of id, problem and kernel (paths relative
    to the file's folder), and optionally language, ruleset, precision and sizes."""
    out: str = ""
    """With --batch: JSONL file to which verdicts are appended as they come; it is sorted into the
    order of the jobs at the end. Jobs whose id is in it are not judged again."""
    unordered: bool = False
    """With --batch: leave the verdicts in the order in which they came."""
    workers: int = 1
    """With --batch: number of kernels judged at the same time."""
    evaluator: str = ""
    """Address of a verdict service that judges in place of this machine, such as
    http://127.0.0.1:8765; its key comes from the environment variable KERNELGYM_API_KEY. The
    service decides how many kernels it judges at the same time. Or ray, for this machine's Ray
    cluster."""
    compile_only: bool = False
    """Only compile the kernel for --arch, whose GPU need not be present, after a run in Triton's
    interpreter on --problem's inputs. This gives no verdict; the exit code is 0 if the kernel
    compiled, otherwise 1."""
    arch: str = ""
    """With --compile-only: architecture, such as gfx942 or gfx950 of AMD, sm_90a or sm_100 of
    NVIDIA."""
    verdict_cache: str = ""
    """Folder in which verdicts are kept; a kernel with a verdict in it is not judged again."""

    def run(self) -> int:
        """Judge the kernel or the jobs; return the exit code."""
        if self.compile_only:
            from kernelgym.cli.check_compile import compile_kernel

            return compile_kernel(self)
        self._refuse(["arch"] if self.arch else [], "needs --compile-only")
        if self.batch:
            return self._batch()
        self._refuse(["out"] if self.out else [], "needs --batch: a JSONL file of jobs")
        self._refuse(["workers"] if self.workers != 1 else [], "needs --batch")
        self._refuse(["unordered"] if self.unordered else [], "needs --batch")
        if self.file.endswith(".json") or self.problem.endswith(".json"):
            return self._spec()
        if not self.file or not self.problem:
            missing = "a FILE that holds the kernel" if not self.file else "--problem ID_or_FILE"
            raise UsageError(
                f"`kernelgym check` needs {missing}, as in `kernelgym check kernel.py --problem "
                "Synthetic/L1/2 --language triton`; or --batch and --out"
            )
        self._check_seed()
        rules = judging.rules_at(self.problem, precise_rules(self.ruleset, self.precision))
        timing = not self.no_timing
        with judging.open_evaluator(
            self.device, rules, 1, timing, self.memory, self.verdict_cache, self.evaluator
        ) as evaluator:
            if not self.evaluator:  # a service has tools of its own
                judging.check_tools(self.language, self.device)
            problem = judging.problem_at(self.problem, sizes=self.sizes)
            check_fits(problem, evaluator.capabilities.memory_bytes, self.device)
            text = judging.read_text(self.file, "kernel file")
            kernel, verdict = self._read(text, rules.label)
            if kernel is not None:
                verdict = judging.judge(evaluator, problem, kernel, self.replay)
        if self.json:
            print(json.dumps(verdict.to_dict()))
        else:
            print_text(f"{problem.id} {problem.name}: {self.language} on {self.device}", "bold")
            reason = judging.untimed_reason(self.language, self.device, timing)
            print_verdict(verdict, untimed=reason)
        return 0 if verdict.correct else 1

    def _spec(self) -> int:
        """Judge a kernel on each shape of a spec."""
        from kernelgym.cli.check_spec import judge_every_shape

        self._refuse(["replay"] if self.replay else [], "repeats one verdict; name one shape by #")
        self._refuse(["reply"] if self.reply else [], "cannot be combined with a kernel spec")
        return judge_every_shape(self)

    def _read(self, text: str, label: str) -> tuple[Kernel | None, Verdict]:
        """Return the kernel; None, with a verdict, if a model's reply holds no kernel."""
        if not self.reply:
            return Kernel(text, self.language), Verdict(Status.NO_KERNEL)
        from kernelgym.answers.parsing import DEFECTS, parse

        reply = parse(text, self.language)
        why = "; ".join(DEFECTS[code] for code in reply.defects)
        return reply.kernel, Verdict(Status.NO_KERNEL, message=why, ruleset=label)

    def _batch(self) -> int:
        given = {
            "FILE": self.file,
            "--problem": self.problem,
            "--json": self.json,
            "--reply": self.reply,
            "--replay": self.replay,
        }
        self._refuse(
            [name for name, value in given.items() if value],
            "cannot be combined with --batch: every job names its own problem and kernel, and "
            "verdicts go to --out",
        )
        if not self.out:
            raise UsageError("--batch needs --out, the JSONL file that the verdicts are added to")
        from kernelgym.cli.batch import run_batch

        return run_batch(self)

    def _check_seed(self) -> None:
        if not self.replay:
            return
        if not find_ruleset(self.ruleset).secret_seed:
            raise UsageError(
                f"--replay is for secret seeds, and ruleset {self.ruleset!r} has public ones: "
                "its verdicts repeat by themselves; leave --replay out"
            )
        if not re.fullmatch(r"[0-9a-f]+", self.replay):
            raise UsageError(
                f"--replay takes the seed that a verdict names (hexadecimal digits), "
                f"got {self.replay!r}"
            )

    @staticmethod
    def _refuse(options: list[str], why: str) -> None:
        if options:
            names = ", ".join(o if o.startswith(("-", "F")) else f"--{o}" for o in options)
            raise UsageError(f"{names} {why}")
