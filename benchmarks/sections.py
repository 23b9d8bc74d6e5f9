"""The tables of docs/performance.md: which result file each is of, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.judge import rows as judged
from benchmarks.retrieval import rows as leaks
from benchmarks.retrieval.effect_rows import effect
from benchmarks.runs import rows as runs
from benchmarks.search.rows import busy_host, decisions, false_promotions, offline, searches
from benchmarks.table_rows import (
    broken_device,
    cases,
    conformance,
    context_cost,
    env_overhead,
    group_rows,
    host_capacity,
    judge_cpu,
    learning_cpu,
    learning_gpu,
    learning_tinker,
    red_team,
    repeatability,
    retrieval,
    several_gpus,
    soak,
    starts,
)

__all__ = ["RESULTS", "SECTIONS", "Section"]

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the page, and how its figures are made."""

    title: str
    result: str
    """Name of the file in benchmarks/results."""
    command: str
    rows: Callable[[Any], str]
    """Turns the file's content into a table in Markdown."""
    about: str
    """What the columns mean."""
    machines: Callable[[Any], list[Any]] = lambda data: [data["machine"]]
    """Returns the records of the machines that the rows come from."""
    source: Callable[[Any], str] = lambda data: data.get("note", "")
    """Returns the text that names the commits that were measured."""


_JUDGE = "python -m benchmarks.judge.judge_throughput --kernelbench-root DIR --workers 4"


def _recorded(*sections: Section) -> tuple[Section, ...]:
    """Return the sections whose results are there."""
    return tuple(section for section in sections if (RESULTS / section.result).exists())


_SHOWS = "python -m benchmarks.runs.gpu_shows --seconds 330"


def _machines_of_stages(data: Any) -> list[Any]:
    """Return the machines that the stages of a learning benchmark ran on, and when."""
    stages = [stage for row in data["seeds"] for stage in row["stages"].values()]
    named = ("date", "cpu", "cores")
    return [data["machine"] | {name: stage["ran"][name] for name in named} for stage in stages]


SECTIONS = (
    Section(
        "One verdict on a GPU",
        "judge_h200.json",
        f"{_JUDGE} --out FILE",
        cases,
        "Seconds for one kernel on KernelBench's problems: its source never seen, the problem "
        "prepared, the mean of two. KernelBench's own evaluation (5 trials, 100 timed calls) of "
        'the same kernels ran on the same machine. "Seen" is the same source again. Stages are '
        "those of `kernelbench`, evidence that of `strict`.",
    ),
    Section(
        "Sixteen kernels of one problem",
        "judge_h200.json",
        f"{_JUDGE} --out FILE",
        group_rows,
        "Sixteen kernels at once by four workers; KernelBench evaluated two of the sixteen.",
    ),
    Section(
        "One verdict on a GPU, without KernelBench",
        "judge_alone_h200.json",
        f"{_JUDGE} --parts starts,cases,groups --without-theirs --out FILE",
        cases,
        "As above, with a later source.",
    ),
    Section(
        "Sixteen kernels, without KernelBench",
        "judge_alone_h200.json",
        f"{_JUDGE} --parts starts,cases,groups --without-theirs --out FILE",
        group_rows,
        "As above, with a later source.",
    ),
    Section(
        "A new worker's first kernel",
        "judge_alone_h200.json",
        f"{_JUDGE} --parts starts,cases,groups --without-theirs --out FILE",
        starts,
        "Seconds until the first verdict of a new evaluator (L1/88), and until all of its workers "
        "have given one.",
    ),
    Section(
        "Sixteen kernels on an H100",
        "judge_alone_h100.json",
        f"{_JUDGE} --parts groups --without-theirs --out FILE",
        group_rows,
        "Two RMSNorms on 7.5 GB do not fit into 80 GB side by side, so they are judged one at a "
        "time.",
        source=lambda data: data["note"].partition("before:")[0],
    ),
    Section(
        "Several GPUs",
        "judge_gpus_h200.json",
        f"{_JUDGE} --parts gpus --gpus 1,2 --gpus-case CASE --without-theirs --out FILE",
        several_gpus("gpus"),
        "Four workers on each GPU.",
        lambda data: [data["gpus_machine"]],
        lambda data: "",
    ),
    Section(
        "Four GPUs",
        "judge_gpus_h200.json",
        f"{_JUDGE} --parts gpus --gpus 1,2,4 --gpus-case CASE --without-theirs --out FILE",
        several_gpus("earlier_gpus"),
        "Four workers on each GPU, with an older source and with functions of the judge logged, "
        "which slows it: compare rows with each other only.",
        lambda data: [data["earlier_gpus_machine"]],
        lambda data: "",
    ),
    Section(
        "One broken device of several",
        "broken_device.json",
        "python -m benchmarks.judge.broken_device --out FILE",
        broken_device,
        "The judge's own retries and blame over simulated workers: 400 kernels, one in twenty "
        "hostile, which end every worker that judges them and should be blamed. Columns are the "
        "honest kernels blamed, those left unavailable, those moved to another device, and the "
        "hostile ones blamed; then simulated seconds from the device's first failure until it is "
        "out of service, and of the whole batch. A worker starts in 5 s and judges in 1 to 3 s. "
        "One run of each row: threads race, so counts differ from run to run. A device that hangs "
        "is noticed at its worker's deadline, and one that loses an attempt in three when three "
        "in a row are lost.",
    ),
    Section(
        "What a host bears",
        "host_capacity.json",
        "python -m benchmarks.judge.host_capacity --out FILE",
        host_capacity,
        "Kernels that take the device no time, untimed. The driver makes and ends contexts one "
        "after the other, on however many GPUs: no number of GPUs gives more verdicts than this.",
        lambda data: [each["machine"] for each in data["machines"]],
    ),
    Section(
        "The judge on the CPU",
        "judge_cpu.json",
        "python -m benchmarks.judge.judge_cpu --memory 5000 --out FILE",
        judge_cpu,
        "Kernels of Synthetic-L1 under `strict`, every source its own.",
        source=lambda data: "",
    ),
    Section(
        "How well verdicts repeat",
        "repeatability_h200.json",
        "python -m benchmarks.repeatability.run --kernelbench-root DIR --out FILE",
        repeatability,
        "One kernel judged again and again. Variation is the deviation of the speedup over its "
        "mean; the last column is the same for KernelBench's speedups.",
    ),
    Section(
        "Agreement with KernelBench",
        "conformance_h200.json",
        "python -m benchmarks.conformance.run --kernelbench-root DIR --out FILE",
        conformance,
        "Verdicts under the ruleset `kernelbench` beside KernelBench's own. The differences are "
        "those that [the judge's page](judge.md#kernelbenchs-verdict) lists.",
    ),
    Section(
        "The red team on a GPU",
        "redteam_h100.json",
        "kernelgym redteam --device cuda:0 --workers 8 --json FILE",
        red_team,
        "Exploits that must be caught, and honest kernels that look like them and must pass; the "
        "whole corpus once, CUDA's and Triton's kernels by two commands (`--only '*.cuda'` and "
        "`--only '*.triton'`).",
    ),
    Section(
        "What the rules on interpreted kernels cost",
        "strict_cost.json",
        "python -m benchmarks.judge.strict_cost --out FILE",
        judged.strict_cost,
        "Correct Triton kernels, each source unseen, judged untimed on two cores: by `strict`, and "
        "by it as it was before it asked Triton's front end, drew ties and looked for races. "
        "Rounds alternate; other programs ran beside them.",
    ),
    Section(
        "What Triton's front end says of learned kernels",
        "front_end_share.json",
        "python -m benchmarks.judge.front_end_share before=FOLDER after=FOLDER --out FILE",
        judged.front_end_share,
        "The demonstration's model, taught from one warm start by verdicts without that question "
        "and with it.",
    ),
    Section(
        "Whose kernels a GPU worked for",
        "device_share_cost.json",
        "python -m benchmarks.judge.device_share_cost --rounds 8 --out FILE",
        judged.device_share_cost,
        "What asking for it costs: honest kernels judged by `strict` and by the same rules without "
        "`own_time`, in turns; medians. Evidence is what the question adds to; the wall time of a "
        "whole verdict varies by more than that.",
    ),
    *(
        Section(
            f"A soak on {where}",
            result,
            f"python -m benchmarks.soak.run {options} --out FILE",
            soak,
            "Verdicts on mixed kernels, one in five hostile. A fault is a verdict that is not a "
            "right one for its kernel; left behind are processes, files and memory afterwards.",
            lambda data: [part["machine"] for part in data["parts"]],
        )
        for where, result, options in (
            ("the CPU", "soak_cpu.json", "--verdicts 2000"),
            ("a GPU", "soak_gpu.json", "--device cuda:0 --workers 5 --verdicts 500 --add"),
        )
    ),
    Section(
        "Learning on the CPU",
        "learning_cpu.json",
        "python -m benchmarks.learning.cpu --seeds 0,1,2 --out FILE",
        learning_cpu,
        "Share of held-out compositions that are right at the first answer, of the model of [the "
        "demonstration](training.md#the-demonstration): 16 samples of each problem, 95 % intervals "
        "by bootstrap over problems. The second table has what the arms reach that begin with the "
        "same model.",
    ),
    Section(
        "Learning on a GPU",
        "learning_gpu.json",
        "python -m benchmarks.learning.gpu --work FOLDER --out FILE",
        learning_gpu,
        "A model of 11 million weights, episodes of three turns; one seed, so the intervals say "
        "nothing of other seeds. `standby` is the number of processes that each of the judge's "
        "workers makes ready; the row with 1 is from another machine of the kind. Speedups are "
        "those of right greedy answers beside eager PyTorch. Preparation, warm start, the first "
        "evaluation and timing are of the machine with 1, all other stages of the one with 3.",
        source=lambda data: "",
    ),
    Section(
        "Learning on a Tinker server",
        "learning_tinker.json",
        "python -m benchmarks.learning.tinker --seeds 0,1,2 --out FILE",
        learning_tinker,
        "The same model and problems as on the CPU, learned by a third party's Tinker server "
        "(skyrl 0.4.0, JAX) on the same two cores, beside other work. `near` is held near its "
        "start by a penalty, `shuffled` is its control with advantages dealt anew, `off_policy` "
        "plays a step while the one before is learned from. `padded to` are the positions that the "
        "server pads shorter prompts to. The hosted service was never tried.",
        _machines_of_stages,
    ),
    Section(
        "What a context costs",
        "context_cost.json",
        "python -m benchmarks.env.context_cost --out FILE",
        context_cost,
        "Tokens of the prompt before each turn of one episode of eight turns on `Synthetic/L2/1`, "
        "one worked example, about 2,020 tokens of thinking an answer, four characters to a token "
        "(`--tokenizer NAME` counts with a real one), no budget.",
        lambda data: [],
    ),
    Section(
        "Similar problems found",
        "retrieval.json",
        "python -m benchmarks.retrieval.run --out FILE",
        retrieval,
        "Held-out Synthetic problems, without docstrings, asked of the embedded corpus; once as "
        "written, once with other names and imports. Three entries are returned: at random, the "
        "most similar by operators, or those that together show most operators (what a model is "
        "shown). `hit@3`: one of them is alike, where the corpus holds such a one (half of both "
        "problems' operators, by their specifications, are shared). `covered`: share of the "
        "query's operators that they show. `on the page`: share of the right kernel's runs of six "
        "words that stand in theirs.",
    ),
    *_recorded(
        Section(
            "Answers copied from examples",
            "retrieval_copies.json",
            "python -m benchmarks.retrieval.copy_agent --verdicts FILE --out FILE",
            leaks.copies,
            "Held-out Synthetic problems, each of a canonical form of its own, asked of an archive "
            "that holds solutions of all parts, theirs too. An agent answers with the three "
            "kernels that a prompt would show: verbatim, with names and sizes changed to those "
            "asked, or with two of them chained. Counted are problems for which the judge "
            "(`strict`, untimed) accepts one. After the copy test, which is the same question, "
            "verbatim answers are 0 unless something is broken.",
        ),
        Section(
            "Solutions in disguise",
            "retrieval_plants.json",
            "python -m benchmarks.retrieval.plants --verdicts FILE --out FILE",
            leaks.plants,
            "The 100 problems of KernelBench's level 1 (`KERNELBENCH_ROOT` names a checkout), in "
            "disguise and under other ids in an archive, beside honest entries (solutions of the "
            "Synthetic suite's levels 2 and 3). `respelled` calls the same operators otherwise; "
            "`rewritten` computes the same by other operators, which no text tells. `shown`: those "
            "that a prompt for their problem shows without the copy test.",
        ),
        Section(
            "Solved with examples and without",
            "retrieval_effect.json",
            "python -m benchmarks.retrieval.effect --work FOLDER --out FILE",
            effect,
            "Small models, made from nothing and taught the same answers in about as many "
            "updates: without examples in the prompt (`none`), or with (the other arms). Held-out "
            "problems are asked, and asked again after a failure: with solutions before the first "
            "answer (`first`), with repairs after it too (`adaptive`), or with nothing. "
            "`unseen operator` asks for an operator that stands in examples only. `copies`: share "
            "of first answers that are a kernel shown, spacing aside. Intervals are over problems.",
            machines=lambda data: list(data["ran"]),
            source=lambda data: "",
        ),
    ),
    Section(
        "What an environment costs",
        "env_overhead.json",
        "python -m benchmarks.env.env_overhead --out FILE",
        env_overhead,
        "One step beside the judge: reading the answer, screening, scoring, feedback, the next "
        "observation.",
    ),
    *_recorded(
        Section(
            "Searches on the CPU",
            "search_cpu.json",
            "python -m benchmarks.search.cpu --out FILE",
            searches,
            "What a search makes of a plain C++ kernel, by duels of its best with its start; goals "
            "are those of the median over seeds on a quiet machine. A search on a busy host comes "
            "to few evaluations in its time, and its intervals are wide: such a row shows what is "
            "claimed there, and not what the moves are worth. What bounds the tasks that miss "
            "their goals is torch's own speed: the start of LayerNorm is six to ten times as slow "
            "as torch here, and that of softmax twelve times, so that ten and fifteen times the "
            "start would be faster than torch. Softmax with exact moves calls `exp` once for each "
            "number: g++ makes vectors of it with `-ffast-math` alone. Rows of `auto` of 26 "
            "November are of a time before it tried the best knobs with other structures. Those of "
            "27 November are of `auto` as it is, on a host that had time for half as many "
            "evaluations: lower speedups there say little of that change. LayerNorm "
            "with approximate moves adds up in floats (`lower_precision`).",
        ),
    ),
    *_recorded(
        Section(
            "Algorithms on measured tables",
            "search_offline.json",
            "python -m benchmarks.search.compare --processes 16 --out FILE",
            offline,
            "The optimum's share that a search has after so many evaluations, median and 10th "
            "percentile over seeds; the area is the mean difference from random search of the "
            "table. The goal of `auto`: within 0.10 of the best median, and not below random "
            "search's 10th percentile, at 20, 60 and 200 evaluations. On the layer normalisation's "
            "table it misses at 20: its tuner draws the first 20 settings at random. On the "
            "matmul's the best programs differ from the best of another loop order by two steps "
            "at once, where algorithms that take one at a time stay; `auto` leaves it once "
            "nothing else gains, and the tenth of its searches that fare worst do not in 200 "
            "evaluations. Tuning all steps at once from the start, as `tpe` does, finds them, and "
            "made real searches of all five tasks above slower where `auto` did it.",
        ),
        Section(
            "What a search's decisions take",
            "search_decisions.json",
            "python -m benchmarks.search.decisions --processes 8 --out FILE",
            decisions,
            "From asking an algorithm to a new state in the graph, without the judge, on the "
            "matmul example's graph of 1,000 states. The goal is 20 ms. The late ones are those "
            "that see a state for the first time, whose proposals are made and proven then, or "
            "whose first proposals repeat known states. `auto` and `evolution` look at many "
            "states for each decision. A verdict takes a hundred times as long.",
        ),
        Section(
            "A search among kernels that are no faster",
            "false_promotions.json",
            "python -m benchmarks.search.false_promotions --out FILE",
            false_promotions,
            "Kernels that differ from the start in names and comments alone; each promotion is a "
            "false one. A run that was cut off shows the searches that it came to.",
        ),
        Section(
            "A busy host",
            "busy_host.json",
            "python -m benchmarks.search.busy_host --out FILE",
            busy_host,
            "One correct C++ softmax judged again and again on two cores, two processes spinning "
            "beside it.",
        ),
    ),
    *_recorded(
        Section(
            "Driving a run",
            "bench_driver.json",
            "python -m benchmarks.env.bench_driver --out FILE",
            runs.driver,
            "What `kernelgym eval` itself takes: policy and judge cost nothing here, and every "
            "answer and verdict is on disk before it is used.",
        ),
        Section(
            "A large run's report",
            "report_size.json",
            "python -m benchmarks.env.report_size --out FILE",
            runs.report,
            "`kernelgym report --json --html` of 1,000 episodes of 4 turns on 200 problems: one "
            "page, and a folder with a page a problem. It works in one thread: where nothing else "
            "runs, it takes about the seconds of its CPU time.",
        ),
        Section(
            "A reference as its own kernel",
            "noise_gpu.json",
            f"{_SHOWS} --parts noise --out FOLDER",
            runs.noise,
            "References of KernelBench, unchanged, judged as kernels under `kernelbench`. A "
            "reference is as fast as itself: `called faster` (speedup above 1) is noise, and "
            "`certainly faster` (the whole 95 % interval above 1) should happen one time in "
            "forty. `deviation` is that of the speedup between verdicts, `half interval` half "
            "the width of a verdict's interval. `strict` refuses kernels that leave all to torch.",
        ),
        Section(
            "KernelBench's folder, judged anew",
            "import_gpu.json",
            f"{_SHOWS} --parts import --out FOLDER",
            runs.judged_import,
            "The conformance kernels that run at their problems' real sizes, imported as "
            "KernelBench leaves them and judged by both rulesets. Claims are what KernelBench "
            "said of them on an H200 (Agreement with KernelBench, above).",
        ),
        Section(
            "References, eager and compiled",
            "baselines_gpu.json",
            f"{_SHOWS} --parts baselines --out FOLDER",
            runs.baselines,
            "Median ms of a call at fp32, TF32 in convolutions only, inputs cold: `kernelgym "
            "baseline --modes --workers 8`. Each is of one process. What the host needs to start a "
            "call is in its time, as far as the flush of the cache before it does not cover that.",
        ),
        Section(
            "A device's rates",
            "device_gpu.json",
            f"{_SHOWS} --parts device --out FOLDER",
            runs.device,
            "What `kernelgym device cuda:0 --json` measures: medians; matrix products of 8192 rows "
            "and columns.",
        ),
    ),
)
