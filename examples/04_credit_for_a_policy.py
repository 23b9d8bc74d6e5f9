"""Play a training step with a policy of your own, and give every turn its credit.

Whatever answers goes where `Guesser` is: a model in this process, or one behind a server. What
`assign_credit` returns is what a trainer needs: token ids, one advantage a turn, one weight a
token. Here answers are drawn from right and broken kernels of the Synthetic suite, and tokens are
characters. Run it with `python examples/04_credit_for_a_policy.py`; it needs numpy beside
kernelgym, neither a GPU nor a compiler, and takes some seconds.
"""

import asyncio
import random
from collections.abc import Sequence

from kernelgym import LocalEvaluator
from kernelgym.episodes.episode import EpisodeConfig
from kernelgym.prompts.observer import Observer
from kernelgym.suites.synthetic import SyntheticSuite, broken_variants, solve
from kernelgym.testing import reply
from kernelgym.types import Problem
from kernelgym_train.credit.credit import CreditRule, assign_credit
from kernelgym_train.rollout.play import play, tasks_of
from kernelgym_train.types import Completion, Rollout, SampleRequest

TURNS, GROUP = 2, 4


class Guesser:
    """Answers half of the questions with a kernel that is right."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._answers = {
            problem.source: [
                reply(broken_variants(problem, "triton")[0].kernel),
                reply(solve(problem, "triton")),
            ]
            for problem in problems
        }

    def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Answer a batch of requests, in their order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: SampleRequest) -> Completion:
        prompt = "\n".join(message.content for message in request.messages)
        known = next(found for source, found in self._answers.items() if source in prompt)
        text = random.Random(request.seed).choice(known)
        return Completion(
            text,
            prompt_ids=tuple(map(ord, prompt)),
            ids=tuple(map(ord, text)),
            logprobs=None,
            finish="stop",
            policy_version=0,
        )


def play_step(problems: Sequence[Problem]) -> list[Rollout]:
    """Play a group of episodes on each problem."""
    with LocalEvaluator(workers=2) as evaluator:
        observer = Observer(
            "triton", evaluator.capabilities.device, evaluator.capabilities.ruleset, TURNS
        )
        tasks = tasks_of(0, problems, GROUP)
        rules = EpisodeConfig(reward="sparse")
        return asyncio.run(play(tasks, Guesser(problems), evaluator, observer, rules))


def main() -> None:
    rollouts = play_step(SyntheticSuite().problems(level=1, ids="2,5"))
    for rollout in rollouts:
        verdicts = ", ".join(turn.verdict.status for turn in rollout.trajectory.turns)
        print(f"{rollout.trajectory.problem.id}, episode {rollout.key.trajectory}: {verdicts}")
    credit = assign_credit(rollouts, CreditRule("trloo", gamma=0.4))
    for sample in credit.samples:
        _, group, episode, turn = sample.key
        print(
            f"group {group}, episode {episode}, turn {turn + 1}: advantage {sample.advantage:+.2f} "
            f"for {len(sample.ids)} tokens"
        )
    print(f"{credit.groups} groups to learn from; without a signal: {list(credit.flat)}")


if __name__ == "__main__":
    main()
