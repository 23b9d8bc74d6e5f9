"""One norm, one linear layer with GELU and one softmax in every language, on one device in one run.

Run ``python -m benchmarks.languages.run --device cuda:0 [--parts PARTS] [--languages NAMES]
[--seconds S] [--out FILE]``. What FILE holds already is not measured again, so a run that was cut
off goes on; a FILE of another GPU is refused.

`kernels`: the three problems of `problems` in fp16, by the kernels of `kernels` and by three of the
red team's corpus, each judged under ``strict``: status, speedup with its lower bound and kernel
time. All are built before any is timed, and one worker times them.
`verdicts`: how long a verdict on a language's sample takes, and its stages: the first one, which
starts a worker with an empty cache; one on a source never seen, which compiles to other code; and
one on a source seen before.
`batch`: sixteen kernels of one problem, all different, by four workers: seconds a kernel.
`corpus`: the language's entries of the red team's corpus, each with its result.

A language that the device or the machine cannot run is listed with the reason. Only languages that
are timed on the device have speedups.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import gpu, machine
from kernelgym.cli.redteam import load_corpus
from kernelgym.errors import UsageError
from kernelgym.judge import LocalEvaluator
from kernelgym.judge.compiling.requirements import check_requirements
from kernelgym.languages import LANGUAGES, check_language
from kernelgym.redteam.corpus import RedTeamOutcome
from kernelgym.testing import SAMPLE_PROBLEM
from kernelgym.types import Job, Kernel, Problem, Verdict

PARTS = ("kernels", "verdicts", "batch", "corpus")
FOLDER = Path(__file__).parent
CORPUS = FOLDER.parents[1] / "tests" / "adversarial"
PROBLEMS = ("linear_gelu", "rmsnorm", "softmax")
MOVED_BYTES = {"rmsnorm": 2 * 8192 * 4096 * 2, "softmax": 2 * 8192 * 4096 * 2}
"""Bytes of the problems whose kernels read their input once and write as much."""
OF_THE_CORPUS = {
    "softmax gluon": "softmax_row_a_program.gluon",
    "softmax tilelang": "fp16_softmax_fragments.tilelang",
    "linear_gelu tilelang": "fp16_linear_gelu_epilogue.tilelang",
}
"""Kernels of the red team's corpus that solve one of the problems: problem and language, name."""
WORKERS, BATCH = 4, 16


class Run:
    """One run: its options, what was measured so far, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.until = time.monotonic() + options.seconds
        self.data: dict[str, Any] = {}
        if options.out and options.out.is_file():
            self.data = json.loads(options.out.read_text())
        packages = ("torch", "triton", "nvidia-cutlass-dsl", "tilelang")
        here = machine(*packages) | gpu(options.device)
        before = self.data.get("machine", here)
        if before.get("gpu") != here.get("gpu"):
            raise UsageError(
                f"{options.out} holds figures of {before.get('gpu', 'a CPU')}, and this device is "
                f"{here.get('gpu', 'a CPU')}: give another --out"
            )
        self.data["machine"] = here

    def wants(self, part: str, name: str) -> bool:
        """Return True if something is not measured yet and there is time for it."""
        return name not in self.data.get(part, {}) and time.monotonic() < self.until

    def keep(self, part: str, name: str, found: Any) -> None:
        """Keep, save and print what was measured."""
        self.data.setdefault(part, {})[name] = found
        print(part, name, json.dumps(found), flush=True)
        if self.options.out:
            self.options.out.parent.mkdir(parents=True, exist_ok=True)
            self.options.out.write_text(json.dumps(self.data, indent=1) + "\n")


def problem_of(name: str) -> Problem:
    """Return one of the problems of `problems`."""
    source = (FOLDER / "problems" / f"{name}.py").read_text()
    return Problem(f"Languages/L1/{name}", "Languages", 1, name, source)


def kernel_path(problem: str, language: str) -> Path:
    """Return the file of a language's kernel for one of the problems."""
    if (shared := OF_THE_CORPUS.get(f"{problem} {language}")) is not None:
        return CORPUS / "honest" / f"{shared}.py"
    return FOLDER / "kernels" / f"{problem}.{language}.py"


def sample_of(language: str) -> tuple[Problem, str]:
    """Return the sample problem and kernel, in fp16 for a language that computes in no fp32."""
    problem, sample = SAMPLE_PROBLEM, LANGUAGES[language].sample
    if "fp32" not in LANGUAGES[language].precisions:
        source = problem.source.replace("torch.randn(7, 33)", "torch.randn(7, 33).half()")
        problem = Problem("Languages/L1/sample", "Languages", 1, "sample", source)
    return problem, sample


def missing(language: str, device: str) -> str:
    """Return why a language cannot be judged on a device; empty if it can."""
    try:
        entry = check_language(language, device)
        check_requirements(entry, entry.sample, device)
    except UsageError as error:
        return str(error)
    return ""


def described(verdict: Verdict) -> dict[str, Any]:
    """Return what a verdict says, as plain data."""
    timing = verdict.timing
    return {
        "status": verdict.status.value,
        "message": verdict.message[:300],
        "findings": [finding.code for finding in verdict.findings],
        "wall_s": round(verdict.wall_s, 3),
        "stages": dataclasses.asdict(verdict.stages) if verdict.stages else {},
        "kernel_ms": timing and timing.kernel_ms,
        "speedup": timing and timing.speedup,
        "speedup_low": timing and timing.speedup_low,
    }


def varied(sample: str, part: float) -> str:
    """Return a sample that adds its one in two parts, and so compiles to other code."""
    suffix = "f" if "+ 1.0f" in sample else ""
    return sample.replace(f"+ 1.0{suffix}", f"+ {part}{suffix} + {1.0 - part}{suffix}")


def judge_kernels(run: Run, languages: Sequence[str]) -> None:
    """Judge the kernels of the three problems in several languages."""
    names = [(language, name) for language in languages for name in PROBLEMS]
    names = [each for each in names if run.wants("kernels", " ".join(each))]
    jobs = [
        Job(problem_of(name), Kernel(kernel_path(name, language).read_text(), language))
        for language, name in names
    ]
    with LocalEvaluator(run.options.device, workers=WORKERS, timing=False) as judge:
        judge.evaluate_many(jobs)  # builds the extensions, of which some take half a minute
    with LocalEvaluator(run.options.device) as judge:
        for (language, name), job in zip(names, jobs, strict=True):
            if not run.wants("kernels", f"{language} {name}"):
                return
            verdict = judge.evaluate(job.problem, job.kernel)
            run.keep("kernels", f"{language} {name}", described(verdict))


def judge_samples(run: Run, language: str) -> None:
    """Judge a language's sample three times, from a cold cache on."""
    if not run.wants("verdicts", language):
        return
    problem, sample = sample_of(language)
    found = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalEvaluator(run.options.device, cache_dir=folder) as judge,
    ):
        sources = {"first": sample, "new_source": varied(sample, 0.5), "seen_before": sample}
        for name, source in sources.items():
            started = time.monotonic()
            verdict = judge.evaluate(problem, Kernel(source, language))
            found[name] = described(verdict) | {"s": round(time.monotonic() - started, 3)}
    run.keep("verdicts", language, found)


def judge_batch(run: Run, language: str) -> None:
    """Judge sixteen different kernels of one problem by four workers."""
    if not run.wants("batch", language):
        return
    problem, sample = sample_of(language)
    jobs = [
        Job(problem, Kernel(varied(sample, number / 64), language))
        for number in range(1, BATCH + WORKERS + 1)
    ]
    with LocalEvaluator(run.options.device, workers=WORKERS) as judge:
        judge.evaluate_many(jobs[BATCH:])  # starts the workers
        started = time.monotonic()
        verdicts = judge.evaluate_many(jobs[:BATCH])
        spent_s = time.monotonic() - started
    statuses = sorted({verdict.status.value for verdict in verdicts})
    run.keep("batch", language, {"s_a_kernel": spent_s / BATCH, "statuses": statuses})


def judge_corpus(run: Run, language: str) -> None:
    """Judge a language's part of the red team's corpus."""
    entries, problems = load_corpus(CORPUS)
    kind = run.options.device.partition(":")[0]
    mine = [e for e in entries if e.language == language and kind in e.devices]
    todo = [entry for entry in mine if run.wants("corpus", entry.name)]
    with LocalEvaluator(run.options.device, workers=WORKERS) as judge:
        jobs = [Job(problems[entry.problem], entry.kernel) for entry in todo]
        for index, verdict in judge.evaluate_iter(jobs):
            outcome = RedTeamOutcome(todo[index], verdict)
            said = {"kind": todo[index].kind, "result": outcome.result}
            run.keep("corpus", todo[index].name, said | described(verdict))
            if time.monotonic() > run.until:
                return


def main() -> None:
    """Measure what is not measured yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--languages", default=",".join(LANGUAGES))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=Path)
    run = Run(parser.parse_args())
    steps = {"verdicts": judge_samples, "batch": judge_batch, "corpus": judge_corpus}
    languages = []
    for language in run.options.languages.split(","):
        if why := missing(language, run.options.device):
            run.keep("not_judged", language, why)
        else:
            languages.append(language)
    for part in run.options.parts.split(","):
        if part == "kernels":
            judge_kernels(run, languages)
            continue
        for language in languages:
            if time.monotonic() < run.until:
                steps[part](run, language)


if __name__ == "__main__":
    main()
