"""Play episodes, record them, and write a report that can be sent to others.

Two players answer the same three problems: one repairs its kernel after feedback, the other gives
up after a wrong one. The report compares them. Run it with `python examples/09_report.py`; it needs
neither a GPU nor a compiler, and takes some seconds. Open report.html in a browser.
"""

import tempfile
from pathlib import Path

import gymnasium as gym

import kernelgym
from kernelgym import LocalEvaluator
from kernelgym.benchmark import report
from kernelgym.envs.recording import RecordTrajectories
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import reply

PROBLEMS = (2, 3, 5)


def play(evaluator: LocalEvaluator, file: Path, repairs: bool) -> None:
    """Record one episode of each problem."""
    for number in PROBLEMS:
        made = gym.make(
            f"{kernelgym.__name__}:Synthetic-L1-MultiTurn-v0",
            problems=[number],
            language="triton",
            max_turns=2,
            evaluator=evaluator,
        )
        env = RecordTrajectories(made, file)
        env.reset(seed=number)
        problem = env.unwrapped.problems[0]
        wrong = broken_variants(problem, "triton")[0].kernel
        answers = iter([wrong, solve(problem, "triton") if repairs else wrong])
        over = False
        while not over:
            _, _, terminated, truncated, _ = env.step(reply(next(answers)))
            over = terminated or truncated
        env.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as name, LocalEvaluator(workers=2) as evaluator:
        files = [Path(name) / "stubborn.jsonl", Path(name) / "repairing.jsonl"]
        for file in files:
            play(evaluator, file, repairs=file.stem == "repairing")
        found = report(*files, html="report.html")
    data = found.to_dict()
    for run in data["runs"]:
        print(f"{run['name']}: solved {run['solved']} of {run['counts']['problems']} problems")
    row = data["comparisons"][0]["rows"]["correct_within"]
    print(
        f"difference {row['difference']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f}), "
        f"{len(row['wins'])} wins, {len(row['losses'])} losses, sign test p = {row['p']:.3g}"
    )
    print("wrote report.html")


if __name__ == "__main__":
    main()
