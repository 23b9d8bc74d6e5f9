"""Play an episode whose prompt shows solved problems like the one asked, found offline.

The answer is the first example's kernel, verbatim: it solves another problem, and the judge says
so. Then comes the right kernel. Run it with `python examples/06_examples_in_the_prompt.py`; it
needs neither a GPU nor a compiler.
"""

import re

import gymnasium as gym

import kernelgym  # registers the environments
from kernelgym.suites.synthetic import solve


def main() -> None:
    env = gym.make(f"{kernelgym.__name__}:Synthetic-L2-MultiTurn-v0", retrieval="synthetic")
    observation, info = env.reset(seed=7, options={"problem_id": 4})
    print(f"{info['problem_id']}: {info['retrieved_tokens']} tokens of examples")
    for entry in info["retrieved"]:
        print(f"shown: {entry}")

    page = observation.partition("# Solved problems that resemble yours")[2]
    copied = re.search(r"Its replacement:\n\n```python\n(.*?)```", page, re.DOTALL)[1]
    for answer in (copied, solve(env.unwrapped.problem).source):
        action = f"<KERNEL>\n```python\n{answer}```\n</KERNEL>"
        observation, reward, terminated, truncated, info = env.step(action)
        shown = len(info["retrieved"])
        print(f"turn {info['turn']}: {info['status']}, reward {reward:.2f}; {shown} examples next")
        if terminated or truncated:
            break
    print(f"ended {info['ended']}; returns {[round(r, 2) for r in info['turn_returns']]}")
    env.close()


if __name__ == "__main__":
    main()
