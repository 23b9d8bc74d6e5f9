"""Play an episode through Gymnasium: a broken kernel, the feedback on it, the repair.

Put a language model where `answers` is, and this is the whole loop. Run it with
`python examples/02_scripted_agent.py`; it needs neither a GPU nor a compiler.
"""

import gymnasium as gym

import kernelgym  # registers the environments
from kernelgym.suites.synthetic import broken_variants, solve


def main() -> None:
    env = gym.make(f"{kernelgym.__name__}:Synthetic-L1-MultiTurn-v0", language="triton")
    observation, info = env.reset(seed=7, options={"problem_id": 2})
    print(f"{info['problem_id']}: the observation is a prompt of {len(observation)} characters")

    problem = env.unwrapped.problem
    answers = [variant.kernel.source for variant in broken_variants(problem, "triton")[:2]]
    answers.append(solve(problem, "triton").source)
    for answer in answers:
        action = f"<KERNEL>\n```python\n{answer}```\n</KERNEL>"
        observation, reward, terminated, truncated, info = env.step(action)
        feedback = env.unwrapped.episode.turns[-1].feedback
        print(f"turn {info['turn']}: {info['status']}, reward {reward:.2f}. {feedback.headline}")
        if terminated or truncated:
            break
    print(f"ended {info['ended']}; returns {[round(r, 2) for r in info['turn_returns']]}")
    env.close()


if __name__ == "__main__":
    main()
