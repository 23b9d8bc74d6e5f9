"""Train on a Tinker server.

It holds the model; this machine plays the episodes and judges.

Give it the server's address: `python examples/05_tinker.py http://127.0.0.1:8004`. Model and
problems are the demonstration's, made by `python -m kernelgym_train.demo --prepare`, and
`make tinker-server` serves them at that address, all on two CPU cores. Eight steps with one answer
an episode take a minute or two. With a model of the hosted service, settings are other ones: see
docs/training-tinker.md.
"""

import sys

from kernelgym import UsageError
from kernelgym.records.jsonlines import read_lines
from kernelgym_train.backends.tinker.checkpoint import read_trained
from kernelgym_train.config.config import load_config
from kernelgym_train.launch.launch import train_run

SETTINGS = (
    *("run.name=example", "env.max_turns=1", "optimiser.steps=8", "optimiser.schedule=constant"),
    *("evaluation.every=0", "logging.tensorboard=false", "logging.live=false"),
)
"""What differs from the ready configuration."""


def main(address: str) -> int:
    try:
        config = load_config("tinker_synthetic", (*SETTINGS, f"tinker.base_url={address}"))
        outcome = train_run(config)
    except UsageError as error:
        print(f"nothing was made: {error}")
        return 2
    for _, row in read_lines(outcome.folder / "metrics.jsonl"):
        print(f"step {row['step']}: {row['turn_1/correct_rate']:.0%} of first answers right")
    print(f"weights: {read_trained(outcome.folder / 'model').sampler_path}")
    return 1 if outcome.stopped else 0


if __name__ == "__main__":
    raise SystemExit(main(*(sys.argv[1:2] or ["http://127.0.0.1:8004"])))
