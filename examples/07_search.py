"""Search for a faster softmax on the CPU, with neither a model nor a GPU.

Run it with `python examples/07_search.py`; it needs `pip install '.[search]'` and a C++ compiler,
and takes some minutes on two cores. More evaluations find more.
"""

import tempfile
from pathlib import Path

from kernelgym import LocalEvaluator
from kernelgym_train.mcgs import Budget, SearchConfig, optimize
from kernelgym_train.mcgs.examples import EXAMPLES


def main() -> None:
    problem, kernel = EXAMPLES["softmax"]
    with tempfile.TemporaryDirectory() as folder, LocalEvaluator(workers=2) as evaluator:
        config = SearchConfig(budget=Budget(builds=4))
        result = optimize(problem, kernel, evaluator, folder, config)
        for move, place, choice in result["best"]["moves"]:
            print(f"{move} at {place}: {choice}")
        if result["best"]["diff"]:
            print((Path(folder) / result["best"]["diff"]).read_text())
    print(
        f"softmax: {result['speedup']:.2f}x over the start "
        f"({result['speedup_low']:.2f} to {result['speedup_high']:.2f})"
    )


if __name__ == "__main__":
    main()
