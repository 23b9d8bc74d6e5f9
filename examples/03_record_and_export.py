"""Play episodes side by side, record them, score them anew, and make rows to train on.

The answers come from broken variants and repairs of the Synthetic suite; a model served by any
framework that awaits goes where `answer` is. Run it with `python examples/03_record_and_export.py`;
it needs neither a GPU nor a compiler, and takes some seconds.
"""

import asyncio
import tempfile
from pathlib import Path

import gymnasium as gym

import kernelgym
from kernelgym import LocalEvaluator
from kernelgym.envs.drivers import play_episodes
from kernelgym.envs.recording import RecordTrajectories
from kernelgym.records.export import preference_rows, sft_rows
from kernelgym.records.rescore import rescore
from kernelgym.records.trajectories import read_records
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import reply

PROBLEMS = (2, 3, 5)


def rounded(scores: tuple[float, ...]) -> list[float]:
    return [round(score, 2) for score in scores]


async def play(evaluator: LocalEvaluator, file: Path) -> None:
    """Play two episodes on each problem: one is right at once, the other repairs its kernel."""
    made = [
        gym.make(
            f"{kernelgym.__name__}:Synthetic-L1-MultiTurn-v0",
            problems=[number],
            language="triton",
            evaluator=evaluator,
        )
        for number in PROBLEMS
        for _ in range(2)
    ]
    envs = [RecordTrajectories(env, file) for env in made]
    by_prompt = {}
    for env in envs:
        problem = env.unwrapped.problems[0]
        right = solve(problem, "triton")
        answers = [broken_variants(problem, "triton")[0].kernel, right, right]
        by_prompt[problem.source] = iter([reply(kernel) for kernel in answers])

    async def answer(messages: list) -> str:
        text = "\n".join(message.content for message in messages)
        return next(answers for source, answers in by_prompt.items() if source in text).__next__()

    for trajectory in await play_episodes(envs, answer, evaluator):
        verdicts = ", ".join(turn.verdict.status for turn in trajectory.turns)
        print(f"{trajectory.problem.id}: {verdicts}; scores {rounded(trajectory.scores)}")
    for env in envs:
        env.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, LocalEvaluator(workers=2) as evaluator:
        file = Path(folder) / "episodes.jsonl"
        asyncio.run(play(evaluator, file))
        records = list(read_records(file))
        again = [rescore(record, "sparse") for record in records]
        print(f"under 'sparse': {[rounded(record.trajectory.scores) for record in again]}")
        print(f"{len(list(sft_rows(records)))} rows for supervised training")
        print(f"{len(list(preference_rows(records)))} preference pairs")


if __name__ == "__main__":
    main()
