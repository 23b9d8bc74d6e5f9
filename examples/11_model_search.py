"""Let a writer of kernels search beside the rules; a command stands in for a model here.

Run it with `python examples/11_model_search.py`; it needs `pip install '.[search]'` and a C++
compiler, and takes a minute or two on two cores. With a model and its key, a search is one command:
`kernelgym-train --backend mcgs input=example:softmax llm_model=NAME price=IN,OUT max_usd=1`.
"""

import sys
import tempfile
from pathlib import Path

from kernelgym import LocalEvaluator
from kernelgym_train.mcgs import Budget, SearchConfig, optimize
from kernelgym_train.mcgs.examples import EXAMPLES
from kernelgym_train.mcgs.writing.policies import CommandPolicy
from kernelgym_train.mcgs.writing.writer import KernelWriter

STAND_IN = """
import sys
source = sys.stdin.read()
line = next(line for line in source.splitlines() if "/ total;" in line)
faster = line.replace("/ total;", "* inverse;")
print("GAIN: 0.3")
print("SUMMARY: multiply by the inverse of the sum")
print("<<<<<<< SEARCH")
print("    for (int64_t c = 0; c < columns; ++c) {")
print(line)
print("=======")
print("    const double inverse = 1.0 / total;")
print("    for (int64_t c = 0; c < columns; ++c) {")
print(faster)
print(">>>>>>> REPLACE")
"""


def main() -> None:
    problem, kernel = EXAMPLES["softmax"]
    with tempfile.TemporaryDirectory() as folder, LocalEvaluator(workers=2) as evaluator:
        script = Path(folder) / "stand_in.py"
        script.write_text(STAND_IN)
        policy = CommandPolicy(f"{sys.executable} {script}", timeout_s=20.0)
        with KernelWriter(policy, free_moves=True) as writer:
            config = SearchConfig(budget=Budget(builds=4), writer=writer)
            result = optimize(problem, kernel, evaluator, Path(folder) / "out", config)
    told = result["writer"]
    print(f"answers: {told['outcomes']}; error of predicted gains: {told['prediction']['error']}")
    print(
        f"softmax: {result['speedup']:.2f}x over the start "
        f"({result['speedup_low']:.2f} to {result['speedup_high']:.2f})"
    )


if __name__ == "__main__":
    main()
