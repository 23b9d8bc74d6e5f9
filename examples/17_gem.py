"""Play two episodes side by side in GEM's vector environment, with its wrappers.

    python examples/17_gem.py

Needs `pip install 'kernelgym[gem]'`. The judge compiles and runs the kernels on the CPU.
"""

from __future__ import annotations

from functools import partial

import gem
from gem.wrappers.observation_wrapper import ObservationWrapper

from kernelgym import get_problem
from kernelgym.adapters.gem import register
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import reply

PROBLEM = get_problem("Synthetic/L1/2")
WRONG, RIGHT = broken_variants(PROBLEM, "triton")[0].kernel, solve(PROBLEM, "triton")

if __name__ == "__main__":
    name = register("Synthetic-L1-MultiTurn", problems="2", max_turns=3)
    # Observation and answer as text; with a tokenizer, GEM applies its chat template.
    wrap = partial(ObservationWrapper, include_chat_template=False)
    envs = gem.make_vec([name, name], [wrap], async_mode=True, seed=1)
    shown, _ = envs.reset()
    for kernels in ([WRONG, RIGHT], [RIGHT, WRONG]):
        shown, rewards, ended, _, _ = envs.step([reply(kernel) for kernel in kernels])
        print(f"rewards {rewards.round(2).tolist()}, ended {ended.tolist()}")
