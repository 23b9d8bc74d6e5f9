"""Every prompt, every category of feedback and every context policy, as files to be read.

``pytest tests/prompts/test_golden.py --update-golden`` writes them anew; look at the difference
before you commit it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kernelgym.answers.parsing import parse
from kernelgym.episodes.episode import Episode, EpisodeConfig
from kernelgym.feedback import CATEGORIES, LEVELS, category, feedback
from kernelgym.languages import LANGUAGES
from kernelgym.prompts.context import CONTEXTS
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.observer import Observer
from kernelgym.prompts.short import ShortObserver
from kernelgym.retrieval.prompt_part import Retrieval
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM, reply, verdict
from kernelgym.types import Kernel, Message, Turn, Verdict
from support.feedback_cases import CASES, timed, wrong

GOLDEN = Path(__file__).parents[1] / "golden"
H200 = Hardware("NVIDIA H200", "sm_90", 132, 141 << 30, 4800.0, 67.0, 227 << 10)


def told(name: str) -> str:
    """Return what each level says of one case."""
    found, text = CASES[name]
    answer = parse(text, "cuda" if "load_inline" in text else "triton")
    sections = []
    for level in LEVELS:
        said = feedback(found, answer, level=level)
        sections.append(f"##### {level} (in a list of attempts: {said.gist!r})\n\n{said}\n")
    return f"category: {category(found)}\n\n" + "\n".join(sections)


def written(messages: tuple[Message, ...]) -> str:
    return "\n".join(f"##### {m.role}\n\n{m.content}\n" for m in messages)


def prompt(language: str, device: str, **options: object) -> str:
    observer = Observer(language, device, **options)  # type: ignore[arg-type]
    return written(observer.observe(SAMPLE_PROBLEM))


def short_prompt() -> str:
    """Return what the short prompt shows after a wrong answer."""
    observer = ShortObserver("triton", "cpu", max_turns=8)
    return written(observer.observe(SAMPLE_PROBLEM, story()[:2]))


STORY: tuple[Verdict, ...] = (
    verdict("compile_error", message="the module did not load: SyntaxError: invalid syntax"),
    wrong("only the last row", 131, first=((36, 0), (36, 1)), worst_at=(36, 5)),
    timed(1.31),
    verdict("runtime_error", message="IndexError: list index out of range (line 24, in forward)"),
    timed(0.71),
)


def story() -> tuple[Turn, ...]:
    """Play an episode of five turns; the third is the best."""
    game = Episode(SAMPLE_PROBLEM, EpisodeConfig(language="triton", max_turns=8, stop_when="never"))
    for number, found in enumerate(STORY, 1):
        source = SAMPLE_KERNELS["triton"].source.replace("BLOCK=128", f"BLOCK={64 << number}")
        text = reply(
            Kernel(source, "triton"),
            f"First I look at what went wrong with the block's size.\n\n"
            f"So this time a block holds {64 << number} elements.",
        )
        game.read(text)
        game.record(text, found)
    return game.turns


def seen(context: str) -> str:
    """Return what a policy shows after that episode; the prompt itself is in other files."""
    observer = Observer("triton", "cuda:0", max_turns=8, examples=0, context=context)
    messages = observer.observe(SAMPLE_PROBLEM, story())
    bare = dataclasses.replace(observer, context="last").observe(SAMPLE_PROBLEM)
    user = messages[1].content.replace(bare[1].content, "(the prompt)")
    return written((Message("user", user), *messages[2:]))


FILES = {
    **{f"feedback/{name}.txt": (told, (name,), {}) for name in CASES},
    **{
        f"prompts/{name}.txt": (prompt, (name, device), {"max_turns": 4})
        for name in LANGUAGES
        if name != "python"
        for device in ("cpu" if name == "cpp" else "cuda:0",)
    },
    "prompts/triton_interpreter.txt": (prompt, ("triton", "cpu"), {"examples": 0}),
    "prompts/triton_short.txt": (short_prompt, (), {}),
    "prompts/triton_retrieval.txt": (
        prompt,
        ("triton", "cpu"),
        {"examples": 0, "parts": (Retrieval(),)},
    ),
    "prompts/triton_kernelbench_few_shot_hardware.txt": (
        prompt,
        ("triton", "cuda:0"),
        {"ruleset": "kernelbench", "examples": "few_shot", "hardware": H200},
    ),
    **{f"context/{name}.txt": (seen, (name,), {}) for name in CONTEXTS},
}


@pytest.mark.parametrize("name", FILES)
def test_what_a_model_reads_is_what_is_written_down(
    name: str, request: pytest.FixtureRequest
) -> None:
    make, arguments, options = FILES[name]
    text = make(*arguments, **options)
    path = GOLDEN / name
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.exists(), "write it with: pytest tests/prompts/test_golden.py --update-golden"
    assert text == path.read_text("utf-8")


def test_no_file_is_left_over() -> None:
    assert {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*.txt")} == set(FILES)


def test_every_category_has_a_file_of_its_name() -> None:
    for name, (found, _) in CASES.items():
        assert name.startswith(category(found)), name
    assert {category(found) for found, _ in CASES.values()} == set(CATEGORIES)
