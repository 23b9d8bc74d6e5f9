"""Evaluate a model on kernels with Inspect: its `eval`, a mock model, and its log.

    python examples/13_inspect.py

Needs `pip install 'kernelgym[inspect]'`. The judge compiles and runs the kernels on the CPU. In
place of `mock`, name a model such as "openai/gpt-5"; the same task on the command line is
`inspect eval kernelgym/kernels --model openai/gpt-5 -T problems=1-3`.
"""

from __future__ import annotations

from inspect_ai import eval as inspect_eval
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from kernelgym import get_problem
from kernelgym.adapters.inspect_task import kernels
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import reply

PROBLEM = get_problem("Synthetic/L1/2")
WRONG, RIGHT = broken_variants(PROBLEM, "triton")[0].kernel, solve(PROBLEM, "triton")


def answer(messages: list, *_: object) -> ModelOutput:
    """Return a broken kernel at first, and the repaired one to the feedback."""
    kernel = WRONG if len(messages) == 2 else RIGHT
    made = ModelOutput.from_content("mockllm/model", reply(kernel))
    made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return made


if __name__ == "__main__":
    mock = get_model("mockllm/model", custom_outputs=answer)
    task = kernels("Synthetic-L1-MultiTurn", problems="2", max_turns=3)
    (log,) = inspect_eval(task, mock, display="none", log_dir="logs")
    (sample,) = read_eval_log(log.location).samples or ()
    score = (sample.scores or {})["judged"]
    print([verdict["status"] for verdict in (score.metadata or {})["verdicts"]])
    print(f"scores of the turns: {(score.metadata or {})['scores']}")
    print(f"{sample.id}: {score.value}")
