"""The questions of docs/performance.md, and which result file answers each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.page import languages, models, service, verdicts

__all__ = ["ELSEWHERE", "LANGUAGES", "RESULTS", "SECTIONS", "ResultTable", "Section"]

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table, or a sentence, that one result file answers a question with."""

    result: str
    """Name of the file in benchmarks/results."""
    command: str
    """Command that writes such a file."""
    rows: Callable[[Any], str]
    """Function that turns the file's content into a table, or into one sentence."""
    about: str = ""
    """Text above a table that says what the columns mean; empty for a sentence."""
    machines: Callable[[Any], list[Any]] = lambda data: [data["machine"]]
    """Function that returns the records of the machines that the figures come from."""


class Section:
    """A question that a user asks, with its tables; sentences follow them as a list."""

    def __init__(self, question: str, *answers: ResultTable) -> None:
        self.question = question
        self.tables = [answer for answer in answers if answer.about]
        self.sentences = [answer for answer in answers if not answer.about]


_JUDGE = "python -m benchmarks.judge.judge_throughput --kernelbench-root DIR --workers 4"
_CPU = "python -m benchmarks.judge.judge_cpu --memory 5000 --out FILE"
_SHOWS = "python -m benchmarks.runs.gpu_shows --seconds 330"
_SOAK = "python -m benchmarks.soak.run --device cuda:0 --workers 5"


def _machines_of_parts(data: Any) -> list[Any]:
    return [part["machine"] for part in data["parts"]]


SECTIONS = (
    Section(
        "How long is a verdict?",
        ResultTable(
            "judge_h200.json",
            f"{_JUDGE} --out FILE",
            verdicts.one_verdict,
            "Seconds for one kernel on a problem that is prepared, its source never seen; seen is "
            "the same source again, and of 16 is each of sixteen kernels given at once to four "
            "workers. KernelBench is its own evaluation (5 trials, 100 timed calls) of the same "
            "kernel on a machine of the same kind, on 2026-11-24.",
        ),
        ResultTable(
            "judge_alone_h200.json",
            f"{_JUDGE} --parts starts,cases,groups --without-theirs --out FILE",
            verdicts.starts,
        ),
        ResultTable("judge_cpu.json", _CPU, verdicts.cpu_build),
    ),
    Section(
        "How many verdicts an hour?",
        ResultTable(
            "judge_stream_h200.json",
            "python -m benchmarks.judge.judge_throughput --kernelbench-root DIR --parts stream "
            "--gpus 1,2,4 --turns 1 --workers 6 --without-theirs --out FILE",
            verdicts.stream,
            "Groups of eight answers to one problem, half of them wrong, as a training run sends "
            "them, by `strict`; every source its own. A preparation is a worker that meets another "
            "problem than its last.",
        ),
        ResultTable(
            "judge_cpu.json",
            _CPU,
            verdicts.cpu_hour,
            "On two CPU cores, kernels of Synthetic-L1 under `strict`, every source its own.",
        ),
    ),
    Section(
        "How well does a verdict repeat, and agree with KernelBench's?",
        ResultTable(
            "repeatability_h200.json",
            "python -m benchmarks.repeatability.run --kernelbench-root DIR --out FILE",
            verdicts.repeatability,
            "One kernel judged again and again by `strict`. Variation is the standard deviation of "
            "the speedup over its mean; the last column is that of KernelBench's speedups.",
        ),
        ResultTable("noise_gpu.json", f"{_SHOWS} --parts noise --out FOLDER", verdicts.noise),
        ResultTable(
            "conformance_h200.json",
            "python -m benchmarks.conformance.run --kernelbench-root DIR --out FILE",
            verdicts.conformance,
        ),
    ),
    Section(
        "What does a verdict service cost, and what does it lose?",
        ResultTable(
            "service_cost.json",
            "python -m benchmarks.service.cost --untimed --out FILE",
            service.cost,
            machines=lambda data: [
                data["machine"],
                *(data[part]["machine"] for part in service.MEASURED_ELSEWHERE),
            ],
        ),
        ResultTable(
            "service_soak.json",
            "python -m benchmarks.service.soak --folder DIR --out FILE",
            service.soak,
        ),
        ResultTable(
            "ray_soak.json",
            "python -m benchmarks.service.ray_soak --out FILE",
            service.ray_soak,
        ),
    ),
    Section(
        "What gets past the judge?",
        ResultTable(
            "redteam_cpu.json",
            "kernelgym redteam --workers 2 --json FILE",
            verdicts.red_team,
            "Exploits that must be caught, and honest kernels that look like them and must pass. "
            "The file keeps what became of each, without messages and logs.",
        ),
        ResultTable(
            "redteam_gpu.json",
            "kernelgym redteam --device cuda:0 --workers 12 --json FILE",
            verdicts.red_team,
            "539 kernels on three H100s of one host, and 91 on H200s: models, most kernels in "
            "other languages, and exploits that know the judge's phases.",
        ),
        ResultTable(
            "soak_cpu.json",
            "python -m benchmarks.soak.run --verdicts 2000 --out FILE",
            verdicts.soak,
            machines=_machines_of_parts,
        ),
        ResultTable(
            "soak_gpu.json",
            f"{_SOAK} --verdicts 500 --add --out FILE",
            verdicts.soak,
            machines=_machines_of_parts,
        ),
    ),
    Section(
        "What was learned?",
        ResultTable(
            "learning_cpu.json",
            "python -m benchmarks.learning.cpu --seeds 0,1,2 --out FILE",
            models.learning_cpu,
            "Share of held-out compositions that the model of [the demonstration](training.md"
            "#the-demonstration) solves at the first answer: 16 samples a problem, 95 % intervals "
            "over problems. Shuffled rewards are the control, the same training on advantages "
            "dealt anew; greedy and cheats are before and after.",
        ),
        ResultTable(
            "learning_tinker.json",
            "python -m benchmarks.learning.tinker --seeds 0,1,2 --out FILE",
            models.learning_tinker,
            "The same model and problems, taught through a third party's Tinker server (skyrl "
            "0.4.0, JAX) on two cores. The hosted service was never tried.",
        ),
        ResultTable(
            "learning_gpu.json",
            "python -m benchmarks.learning.gpu --work FOLDER --out FILE",
            models.learning_gpu,
            "A model of 11 million weights on a GPU, episodes of three turns; one seed.",
        ),
    ),
    Section(
        "Do solved problems in the prompt help?",
        ResultTable(
            "retrieval_effect.json",
            "git -C benchmarks show 48cc771:./retrieval/effect.py",
            models.effect,
            "Held-out problems solved within two answers by small models that were taught the same "
            "answers, without examples in the prompt or with; three seeds together, 95 % intervals "
            "over problems.",
            lambda data: list(data["ran"]),
        ),
        ResultTable(
            "retrieval_copies.json",
            "python -m benchmarks.retrieval.copy_agent --verdicts FOLDER --out FILE",
            models.copies,
        ),
    ),
    Section(
        "What does a search gain?",
        ResultTable(
            "search_gpu.json",
            "python -m benchmarks.search.gpu --out FILE",
            models.gpu_searches,
            "`tpe` from plain kernels, 60 evaluations on an H200; searches of softmax and RMSNorm "
            "ended at the bandwidth of a copy: softmax after 4, by `random` "
            "(median of two seeds) after 11 and 57. Torch is eager PyTorch; for KernelBench, the "
            "faster of eager and compiled. L1/40 searched again with `split_row`: 23.6 times "
            "(1.08 of torch), not confirmed by a last duel.",
        ),
        ResultTable(
            "search_offline.json",
            "python -m benchmarks.search.compare --processes 16 --out FILE",
            models.offline,
            "Share of the optimum's speed after 60 evaluations; 30 % fail, 5 % noise; 50 seeds.",
        ),
        ResultTable(
            "search_counters.json",
            "python -m benchmarks.search.gpu --algorithms best_first --ncu-every 8 --out FILE",
            models.counters,
        ),
        ResultTable(
            "search_openevolve.json",
            "python -m benchmarks.search.beside_openevolve --out FILE",
            models.beside_openevolve,
        ),
        ResultTable(
            "search_openevolve_gpu.json",
            "python -m benchmarks.search.beside_openevolve --only softmax matmul_fp16 --seeds 0 "
            "--builds 40 --out FILE",
            models.beside_openevolve,
        ),
        ResultTable(
            "search_cpu.json",
            "python -m benchmarks.search.cpu --out FILE",
            models.searches,
        ),
        ResultTable(
            "false_promotions.json",
            "python -m benchmarks.search.false_promotions --out FILE",
            models.false_promotions,
        ),
    ),
    Section(
        "What does a context cost?",
        ResultTable(
            "context_cost.json",
            "python -m benchmarks.env.context_cost --out FILE",
            models.context_cost,
            "Tokens of the prompt in one episode on `Synthetic/L2/1`: one worked example, 2,020 "
            "tokens of thinking an answer, four characters a token. An episode in `transcript` "
            "ends when the budget is spent.",
            lambda data: [],
        ),
    ),
    Section(
        "What do environments, runs and PyTorch's own code take?",
        ResultTable(
            "env_overhead.json",
            "python -m benchmarks.env.env_overhead --out FILE",
            models.env_overhead,
        ),
        ResultTable(
            "bench_driver.json",
            "python -m benchmarks.env.bench_driver --out FILE",
            models.driver,
        ),
        ResultTable(
            "baselines_gpu.json",
            f"{_SHOWS} --parts baselines --out FOLDER",
            verdicts.baselines,
        ),
    ),
)

_LANGUAGES = "python -m benchmarks.languages.run --device cuda:0 --out FILE"
LANGUAGES = (
    ResultTable(
        "languages_h100.json",
        _LANGUAGES,
        languages.kernels,
        "One kernel of each problem in each language, in fp16 by `strict`, on one GPU in one run: "
        "8192 rows of 4096 numbers for RMSNorm and softmax, a product of 2048 by 2048 by 2048 for "
        'the linear layer. They are plain kernels, not the best of their language. "At least" is '
        "the lower end of the speedup's 95 % interval; the share is of the bandwidth in the GPU's "
        "data sheet.",
    ),
    ResultTable(
        "languages_h100.json",
        _LANGUAGES,
        languages.verdict_times,
        "Seconds of a verdict on each language's sample: the first of a new evaluator with an "
        "empty cache; a source never seen, by a running worker; and a source seen before. Gluon's, "
        "and the kernels above, are of the day before, on another host.",
    ),
    ResultTable(
        "languages_h200.json",
        _LANGUAGES,
        languages.batch_times,
        "Seconds for each of sixteen sources of one problem, all different and never seen, that "
        "four workers judge at once. `cuda` and `thunderkittens` were measured in other runs on an "
        "H200: `nvcc` takes 7.6 s and 10.7 s for each source, and compiles four at a time.",
    ),
)
"""Tables of docs/languages.md."""

ELSEWHERE = {
    "languages_h100.json": "kernels and verdicts in each language, on "
    "[the page on languages](languages.md)",
    "languages_h200.json": "sixteen kernels at once in six languages, on the same page",
    "judge_alone_h100.json": "sixteen kernels at once on a GPU of 80 GB",
    "device_share_cost.json": "what the time of a GPU's kernels by name costs a verdict",
    "laptop_agreement.json": "how often a CPU and an H100 give a Triton kernel the same status",
    "front_end_share.json": "how many learned kernels Triton's front end accepts",
    "interval_coverage.json": "how many intervals of 40 verdicts beside two spinning processes, "
    "and of 40 without, hold the quiet speedup",
    "import_gpu.json": "a run folder of KernelBench, judged anew by both rulesets",
    "service_training.json": "rewards of a training run whose service was killed twice",
    "report_size.json": "what `kernelgym report` of 1,000 episodes takes",
    "device_gpu.json": "rates of copies, matrix products and launches of a GPU",
    "speed_paths.json": "what each path that makes verdicts quicker saves on the CPU",
    "search_decisions.json": "milliseconds that choosing a search's next state takes",
    "search_ruler.json": "twenty searches beside a spinning process, and what a script measures",
    "search_reading.json": "in how many C++ kernels a search can change the deepest loop",
    "strict_cost.json": "what the rules on interpreted kernels cost",
    "host_capacity.json": "verdicts an hour that two GPU hosts bear, if kernels take no time",
    "broken_device.json": "how soon one broken device of four is out of service",
    "busy_host.json": "verdicts and a search beside two spinning processes",
}
"""Result files that the page only names, and what they hold."""
