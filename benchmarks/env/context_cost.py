"""What each context policy costs: tokens of the prompt at every turn of one episode.

Run ``python -m benchmarks.env.context_cost [--out FILE]``. The episode has eight turns on a problem
of the Synthetic suite, with kernels of that suite, verdicts by script, and thinking of a fixed
length; it is the same every time. Tokens are counted by the estimate of four characters each,
unless a tokenizer of Hugging Face is named with ``--tokenizer`` (it is loaded, not downloaded, if
it is a folder). Policies run without a budget, and then with the default one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.prompts.context import CONTEXTS
from kernelgym.prompts.observer import HISTORY_TOKENS, Observer
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import reply, verdict
from kernelgym.tokens import TokenCounter, estimate_tokens
from kernelgym.types import Kernel, Mismatch, Trajectory, Verdict

PROBLEM = "Synthetic/L2/1"
TURNS = 8
THOUGHT_CHARS = 8_000
UNLIMITED = 10**9
_SENTENCES = (
    "The reference reads its input once per operator, so a fused kernel should move less memory.",
    "I give each program one block of consecutive elements and mask the last one.",
    "What was wrong last time points at the edge, so I check the mask before anything else.",
    "A larger block means fewer programs; the registers should still suffice.",
    "The constants are those of the reference, and sums are accumulated in fp32.",
)


def thought(turn: int) -> str:
    """Return thinking of `THOUGHT_CHARS` characters, with a last paragraph that sums it up."""
    lines, number = [], turn
    while sum(map(len, lines)) < THOUGHT_CHARS:
        lines.append(_SENTENCES[number % len(_SENTENCES)])
        number += 1 + turn % 2
    summary = f"Change {turn}: {_SENTENCES[turn % len(_SENTENCES)]}"
    return "\n".join(lines)[:THOUGHT_CHARS] + "\n\n" + summary


def verdicts() -> list[Verdict]:
    """Return what becomes of the eight answers."""
    wrong = dataclasses.replace(
        verdict("wrong", trials=9, message="9 of 9 calls failed"),
        mismatch=Mismatch(
            24,
            (8, 131),
            ((7, 107), (7, 108), (7, 109), (7, 110)),
            (7, 120),
            pattern="only the last block of 1024 (elements 1024 to 1047) in row-major order",
            relation="zero",
            call=1,
            calls=9,
        ),
    )
    failed = "NameError: name 'BLOK' is not defined (line 24, in forward)"
    return [
        verdict("compile_error", message="the module did not load: SyntaxError: invalid syntax"),
        verdict("runtime_error", message=failed),
        wrong,
        verdict("correct", trials=9, speedup=0.81),
        verdict("correct", trials=9, speedup=1.27),
        wrong,
        verdict("correct", trials=9, speedup=1.19),
        verdict("correct", trials=9, speedup=1.42),
    ]


def episode() -> Trajectory:
    """Play the episode."""
    problem = get_problem(PROBLEM)
    broken = [variant.kernel for variant in broken_variants(problem, "triton", 0)]
    right = solve(problem, "triton", 0)
    game = Episode(problem, EpisodeConfig(language="triton", max_turns=TURNS, stop_when="never"))
    for turn, found in enumerate(verdicts(), 1):
        kernel = right if found.correct else broken[turn % len(broken)]
        source = f"{kernel.source.rstrip()}\n\n\n# attempt {turn}\n"
        text = reply(Kernel(source, "triton"), thought(turn))
        game.read(text)
        game.record(text, found)
    return game.trajectory


def costs(count: TokenCounter = estimate_tokens, budget: int = UNLIMITED) -> dict[str, list[int]]:
    """Return the prompt's tokens before each turn, by policy; 0 once an episode is cut."""
    played = episode()
    found = {}
    for name in CONTEXTS:
        observer = Observer("triton", "cuda:0", max_turns=TURNS, context=name, count=count)
        before = [played.turns[:turn] for turn in range(TURNS)]
        found[name] = [
            0
            if observer.is_full(played.problem, turns, budget)
            else observer.tokens(observer.observe(played.problem, turns, budget))
            for turns in before
        ]
    return found


def table(found: dict[str, list[int]]) -> str:
    """Return the costs as a table in Markdown."""
    turns = " | ".join(f"turn {turn}" for turn in range(1, TURNS + 1))
    rows = [f"| context | {turns} | all |", "|---" * (TURNS + 2) + "|"]
    for name, tokens in found.items():
        cells = " | ".join(f"{each:,}" for each in tokens)
        rows.append(f"| `{name}` | {cells} | {sum(tokens):,} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tokenizer", help="name or folder of a Hugging Face tokenizer")
    arguments = parser.parse_args()
    count: TokenCounter = estimate_tokens
    if arguments.tokenizer:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)

        def count(text: str) -> int:
            return len(tokenizer.encode(text, add_special_tokens=False))

    unlimited, budgeted = costs(count), costs(count, HISTORY_TOKENS)
    print(f"without a budget\n\n{table(unlimited)}\n")
    print(f"with the default budget of {HISTORY_TOKENS} tokens\n\n{table(budgeted)}")
    if arguments.out:
        data = {
            "problem": PROBLEM,
            "thought_tokens": [count(turn.reply.thought) for turn in episode().turns],
            "counter": arguments.tokenizer or "four characters a token",
            "unlimited": unlimited,
            "budgeted": {"tokens": HISTORY_TOKENS, "costs": budgeted},
        }
        arguments.out.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
