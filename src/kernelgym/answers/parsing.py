"""Parse a model's text into its kernel, its thinking, and the defects of its form.

Contract: `parse` takes any string, never raises and takes linear time. Three forms of an answer are
looked for, and the first form that holds an answer is the one used:

1. a ``<KERNEL>...</KERNEL>`` block, with or without a fenced block inside;
2. a fenced block;
3. the text itself, if it is nothing but a module.

An answer is Python that defines ``class ModelNew``. Among several the last whole module wins; a
fragment, code with a syntax error and a usage stub count for less, in this order, and a stub counts
only if there is nothing else (`kernelgym.answers.completeness`). Markers inside strings and
comments of a module are code (`kernelgym.answers.blocks`). A text may begin inside a block that the
prompt opened. After an answer the text ends where the model invents the other side's turn.

It does not judge the code: that is the business of `kernelgym.answers.screening` and of the judge.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import dropwhile

from kernelgym.answers.blocks import (
    MODEL_NEW,
    MODULE_START,
    THINK_TAG,
    CodeBlock,
    code_blocks,
    tidy,
)
from kernelgym.answers.completeness import Completeness, completeness
from kernelgym.types import Kernel, Reply

DEFECTS = {
    "no_kernel_tag": "the answer is not inside <KERNEL> and </KERNEL>",
    "unclosed_kernel": "<KERNEL> is opened but never closed; the text may have been cut off",
    "unclosed_fence": "a fenced code block is opened but never closed",
    "unclosed_think": "<think> is opened but never closed; the text may have been cut off",
    "several_answers": "there is more than one answer; the last well-formed one was taken",
    "invented_turn": (
        "after the answer the text invents feedback and answers it; only what stands before the "
        "invented feedback was read"
    ),
    "no_model_new": "a code block was found, but it does not define class ModelNew",
    "no_answer": "no kernel was found in the text",
    "cut_off": "the answer ran into the limit of new tokens and was cut off",
}
"""Meaning of every defect code. `parse` reports all but ``cut_off``, which only the sampler of the
text can know (see `kernelgym.episodes.episode.Episode.read`)."""

_KERNEL_TAG = re.compile(r"</?KERNEL>")
_MARKUP = re.compile(r"</?\w+>|[^\w]")
_QUOTES = frozenset("`'\"")
_INVENTED_TURN = re.compile(
    r"<\|(?:im_start|im_end|eot_id|start_header_id|user|endoftext)\|>|</?(?:start|end)_of_turn>"
    r"|\[INST\]|</s>|^[ \t>*#_\[<|]{0,8}(?:"
    r"what became of turn \d|your (?:kernel|code|answer|solution|previous|last)\b|turns? left\b"
    r"|(?:user|human|assistant|system|environment|observation|judge|evaluator|tool_response)"
    r"(?:[ \t]*(?:[:>\]|*_#]|$)|[ \t][\w ]{0,20}[:>\]])"
    r"|[\w ]{0,20}\bfeedback\b[\w ]{0,30}(?:[:>\]*_]|$)|turn \d{1,3}\b[^\n]{0,20}$"
    r"|(?:evaluation|execution|compilation|test) results?\b"
    r"|(?:status|verdict|result)[*_]{0,2}[ \t]*:[*_`\" \t]{0,4}"
    r"(?:wrong|correct|rejected|compile_error|runtime_error|timeout|no_kernel)\b)",
    re.MULTILINE | re.IGNORECASE,
)
"""Line that the other side of a conversation writes: its role, feedback on a kernel, or a status.
"""


def parse(text: str, language: str) -> Reply:
    """Read one reply of a model.

    Args:
        text: The model's text, of any length and content.
        language: Language of the kernel; it is stored with the kernel and not checked.

    Returns:
        The reply; `Reply.kernel` is None if there is no answer.
    """
    text = text.replace("\r\n", "\n")
    tags, blocks = _think_tags(text)
    rest, thought, defects = _split_thought(text, tags, blocks)
    source, more = _find_answer(rest)
    if source is None and (fewer := _plausible(text, tags)) != tags:
        without, its_thought, its_defects = _split_thought(text, fewer, blocks)
        found, its_more = _find_answer(without)
        if found is not None:
            source, thought, defects, more = found, its_thought, its_defects, its_more
    kernel = None if source is None else Kernel(source, language)
    return Reply(kernel, thought, tuple(dict.fromkeys(defects + more)))


def _think_tags(text: str) -> tuple[list[re.Match[str]], list[CodeBlock]]:
    """Return the thinking tags outside code and quotes, and the complete ``<KERNEL>`` blocks."""
    first = THINK_TAG.search(text)
    if first is None:
        return [], []
    blocks, _ = code_blocks(text, thinking=True)
    modules = [block.code for block in blocks if block.code]
    if first.group(1) and not _is_inside(first.start(), modules):
        # The text begins inside a thought, and its answer may begin inside a block.
        before = [block for block in blocks if block.end <= first.start()]
        blocks = before + code_blocks(text, first.end(), thinking=True)[0]
        modules = [block.code for block in blocks if block.code]
    tags = [
        tag
        for tag in THINK_TAG.finditer(text)
        if not _is_inside(tag.start(), modules) and not _is_quoted(text, tag)
    ]
    return tags, [block for block in blocks if block.tagged and MODEL_NEW.search(block.source)]


def _is_inside(index: int, spans: Sequence[tuple[int, int]]) -> bool:
    at = bisect_right(spans, (index, len(spans) and spans[-1][1])) - 1
    return at >= 0 and index < spans[at][1]


def _is_quoted(text: str, tag: re.Match[str]) -> bool:
    around = {text[max(0, tag.start() - 1) : tag.start()], text[tag.end() : tag.end() + 1]}
    return around <= _QUOTES


def _is_mentioned(text: str, tag: re.Match[str]) -> bool:
    """Return True if words stand before and after a tag on its line."""
    before = text[max(0, tag.start() - 80) : tag.start()].rpartition("\n")[2]
    after = text[tag.end() : tag.end() + 80].partition("\n")[0]
    return all(_MARKUP.sub("", side) for side in (before, after))


def _plausible(text: str, tags: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Return the thinking tags to believe where believing all of them would hide the answer.

    Tags that prose mentions do not, nor does a closing tag without an opening one.
    """
    firm = (tag for tag in tags if not _is_mentioned(text, tag))
    return list(dropwhile(lambda tag: bool(tag.group(1)), firm))


def _split_thought(
    text: str, tags: Sequence[re.Match[str]], blocks: Sequence[CodeBlock]
) -> tuple[str, str, list[str]]:
    """Return (text without thinking, the thinking, defects).

    An opening tag that nothing closes counts for nothing where prose mentions it. Otherwise its
    thinking ends where a complete ``<KERNEL>`` block begins, or with the text.
    """
    kept: list[str] = []
    thoughts: list[str] = []
    position, opened, first = 0, None, True
    for tag in tags:
        closing = bool(tag.group(1))
        inside = opened is not None or (closing and first)
        first = False  # a text that begins with a closing tag begins inside a thought
        if closing != inside:
            continue  # "<think>" mentioned inside a thought, or a stray closing tag
        (thoughts if inside else kept).append(text[position : tag.start()])
        position, opened = tag.end(), None if closing else tag
    defects: list[str] = []
    if opened is not None:
        if _is_mentioned(text, opened):
            firm = [t for t in tags if t.start() < opened.start() or not _is_mentioned(text, t)]
            return _split_thought(text, firm, blocks)
        starts = (block.start for block in blocks if block.start >= position)
        answer = next(starts, len(text))
        thoughts.append(text[position:answer])
        defects, position = ["unclosed_think"], answer
    kept.append(text[position:])
    thought = "\n".join(part for part in (t.strip() for t in thoughts) if part)
    return "\n".join(kept), thought, defects


def _find_answer(text: str) -> tuple[str | None, list[str]]:
    """Return the source of the kernel in an answer, or None; and the defects of its form."""
    blocks, is_open = code_blocks(text)
    defects = ["unclosed_kernel"] if is_open else []
    tagged = any(block.tagged and block.closed for block in blocks)
    defects += [] if tagged or is_open else ["no_kernel_tag"]
    answers = _of_one_form([block for block in blocks if MODEL_NEW.search(block.source)])
    if not answers:
        first = MODEL_NEW.search(text) and not blocks and MODULE_START.search(text)
        if first:
            return tidy(_KERNEL_TAG.sub("", text[first.start() :])), defects
        shown = any(block.source.strip() for block in blocks)
        return None, [*defects, "no_model_new" if shown else "no_answer"]
    last = answers[-1]
    defects += ["unclosed_fence"] if not last.closed and not last.tagged else []
    before = _before_invented_turn(text, blocks, answers)
    defects += ["invented_turn"] if len(before) < len(answers) else []
    sources = [answer.source for answer in before]
    if len(set(sources)) == 1:
        return sources[0], defects
    best = max(range(len(sources)), key=lambda index: (completeness(sources[index]), index))
    return sources[best], [*defects, "several_answers"]


def _of_one_form(answers: Sequence[CodeBlock]) -> list[CodeBlock]:
    """Return the answers in ``<KERNEL>`` tags, or else the others.

    Usage stubs are left out where anything else is left.
    """
    if len(answers) < 2:
        return list(answers)
    whole = [block for block in answers if completeness(block.source) > Completeness.STUB]
    whole = whole or list(answers)
    return [block for block in whole if block.tagged] or whole


def _before_invented_turn(
    text: str, blocks: Sequence[CodeBlock], answers: Sequence[CodeBlock]
) -> Sequence[CodeBlock]:
    """Return the answers before the first turn of the other side that the text invents."""
    if len(answers) < 2:
        return answers
    spans = [(block.start, block.end) for block in blocks]
    for line in _INVENTED_TURN.finditer(text, answers[0].end, answers[-1].start):
        if not _is_inside(line.start(), spans):
            return [answer for answer in answers if answer.start < line.start()]
    return answers
