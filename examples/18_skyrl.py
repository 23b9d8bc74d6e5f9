"""Register episodes with SkyRL-Gym, write its data set, and play one as SkyRL's generator does.

    python examples/18_skyrl.py

Needs `pip install 'kernelgym[skyrl]'`. The judge compiles and runs the kernels on the CPU. A run of
SkyRL calls `register` in its entry point, and takes the rows by `data.train_data`.
"""

from __future__ import annotations

import json
from pathlib import Path

import skyrl_gym

from kernelgym import get_problem
from kernelgym.adapters.skyrl import register
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import reply

PROBLEM = get_problem("Synthetic/L1/2")
ANSWERS = [broken_variants(PROBLEM, "triton")[0].kernel, solve(PROBLEM, "triton")]

if __name__ == "__main__":
    episodes = register("kernelgym", "Synthetic-L1-MultiTurn", problems="2", max_turns=3)
    rows = episodes.rows()
    Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (row,) = rows
    env = skyrl_gym.make("kernelgym", extras={"problem_id": row["problem_id"], "max_turns": 3})
    chat, _ = env.init(row["prompt"])
    for kernel in ANSWERS:
        step = env.step(reply(kernel))
        chat += [{"role": "assistant", "content": reply(kernel)}, *step["observations"]]
        print(f"reward {step['reward']:.2f}, done {step['done']}, {len(chat)} messages")
    print(env.get_metrics())
