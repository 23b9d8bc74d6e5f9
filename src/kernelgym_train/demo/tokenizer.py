"""Tokenizer of the demonstration's model: most lines are one token, but no line of an operator is.

Contract: it is trained on the warm start's texts alone. Any text encodes and decodes to itself,
byte by byte where no longer token fits. No token crosses a line break. The line of an operator or
reduction is never one token: its target, operator and operands are tokens of their own, so that a
model learns to compose them. The result is a tokenizer of transformers with a chat template, a
padding token and a token that ends an answer.

With the default size, most of the training texts take at most `MODULE_TOKENS` an answer and
`PROMPT_TOKENS` a question; `within_budget` drops the others, and `is_answerable` finds problems
whose answers are all longer. Other texts may take more.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kernelgym.errors import UsageError
from kernelgym.prompts.short import question
from kernelgym.suites.synthetic import solve
from kernelgym.types import Problem
from kernelgym_train.demo.corpus import Example
from kernelgym_train.demo.dialogue import answer_of
from kernelgym_train.rollout.huggingface_policy import ChatText

MODULE_TOKENS = 60
"""Largest number of tokens of an answer's module."""
PROMPT_TOKENS = 80
"""Largest number of tokens of a problem's first prompt, the chat template included."""
VOCABULARY = 3000
"""Default of the largest number of tokens in the vocabulary."""

_PIECES = 8
"""Number of tokens in the vocabulary, beside the bytes, for each token of text outside of
phrases."""
_OFTEN = 2
"""Smallest number of different texts in which a phrase must occur to become a token."""
_STYLES = 16
"""Number of styles that are tried for a short right answer."""
_SPECIAL = ("<pad>", "<|im_end|>", "<|im_start|>")
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CALLED = (
    r"tl\.(?:exp|log|sqrt|abs|sin|erf|where|maximum|minimum|sum|max|min|cumsum|dot)\("
    r"|\bF\.|torch\.(?!empty|nn|rand)"
)
_VALUES = "v|val|value|cur|out"
_PLAIN = r"tl\.load\(|torch\.empty|(?:fused|run|launch|compute|forward)\("
# Of an operator's line: what is assigned to. Then, of the rest: the first operand and the sign.
_TARGET = rf"^ *(?:\w+ \+?= (?=[^\n]*(?:{_CALLED}))|(?:{_VALUES}) = (?!{_PLAIN}))"
# Of a kernel's signature and of its launch: the arguments, apart from the block sizes.
_ARGUMENTS = r"(?<=_kernel\(|\]\()[a-z][^\n]*?, (?=[A-Z_]+(?:=|: tl\.))"
_OPERAND = r"^(?:\w+ [-+*/] |-(?=\w))"
# Of whatever takes or returns the tensors.
_TENSORS = r"(?<=def run\(|= run\(|\(self, |return \[)\w+(?:, \w+)*(?=[\])])"
# Of both, one by one: there are many orders, and a chain needs one that was hardly seen.
_ARGUMENT = r"(?<![\w(])\w+, (?=(?:\w+, )*\w*$)"
# Of the load of an operand, where it goes and what is loaded, apart from the place.
_LOADED = r"(?<=_val = tl\.load\()\w+(?= \+)|^ *\w+_val = tl\.load\("
# What is called, apart from what it is applied to.
_FUNCTION = r"^(?:[A-Za-z]\w*\.)+\w+(?=\()"
# Of a size, its name and its digits.
_SIZE = r"^\w+ = (?=\d)|\d(?=\d*\n$)"
_LINE = "[^\n]*\n|[^\n]+"
_PHRASES = (
    *(_LINE, _TARGET, _OPERAND, _ARGUMENTS, _TENSORS, _ARGUMENT, _LOADED, _FUNCTION),
    _SIZE,
)
_WORDS = r" ?\w+| ?[^\s\w]+|\n *|\s+"


def texts_of(examples: Iterable[Example]) -> tuple[str, ...]:
    """Return the texts of examples for the tokenizer, each once, in their order."""
    texts: dict[str, None] = {}
    for example in examples:
        for message in example.messages:
            texts[message.content] = None
        texts[example.answer] = None
    return tuple(texts)


def train_tokenizer(
    examples: Iterable[Example], size: int = VOCABULARY, *, words: bool = False
) -> Any:
    """Return a tokenizer of transformers, trained on the texts of the warm start.

    Args:
        examples: The warm start's; nothing of other parts belongs here.
        size: Most tokens; all bytes are among them.
        words: Tokens of ordinary kinds instead of phrases: no longer than a name, a number, a run
            of signs or a line's indentation.

    Raises:
        UsageError: If the size leaves no room for tokens beyond single bytes.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    least = len(alphabet) + len(_SPECIAL)
    if size <= least:
        raise UsageError(f"a tokenizer needs more than {least} tokens, got {size}")
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(
                pre_tokenizers.Split(Regex(pattern), "isolated")
                for pattern in ((_WORDS,) if words else _PHRASES)
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    # Whole phrases need no pieces that lead to them; pairs of pieces are for what is rare.
    pieces = size if words else least + (size - least) // _PIECES
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        min_frequency=2,
        initial_alphabet=alphabet,
        special_tokens=list(_SPECIAL),
        show_progress=False,
    )
    frame = "user\n", "assistant\n"
    texts = [*texts_of(examples), *frame * 100]
    core.train_from_iterator(texts, trainer)
    if not words:
        core.model = _with_phrases(core, texts, size)
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = _TEMPLATE
    return made


def _with_phrases(core: Any, texts: Sequence[str], size: int) -> Any:
    """Return a tokenizer's model that has the most frequent phrases as tokens, up to `size`."""
    from tokenizers import models

    learned = json.loads(core.to_str())["model"]
    vocabulary: dict[str, int] = learned["vocab"]
    often: Counter[str] = Counter()
    for text, times in Counter(texts).items():  # many a problem is read before several answers
        for phrase, _ in core.pre_tokenizer.pre_tokenize_str(text):
            often[phrase] += times
    for phrase, count in sorted(often.items(), key=lambda pair: (-pair[1], pair[0])):
        if len(vocabulary) >= size or count < _OFTEN:
            break
        vocabulary.setdefault(phrase, len(vocabulary))
    merges = [tuple(pair) for pair in learned["merges"]]
    return models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True)


def is_answerable(
    tokenizer: Any,
    problem: Problem,
    *,
    module_tokens: int = MODULE_TOKENS,
    prompt_tokens: int = PROMPT_TOKENS,
) -> bool:
    """Return True if a problem's first prompt and a right answer are short enough."""
    if len(ChatText(tokenizer).prompt(question(problem))[0]) > prompt_tokens:
        return False
    sources = (solve(problem, style_seed=style).source for style in range(_STYLES))
    return any(_length(tokenizer, answer_of(source)) <= module_tokens for source in sources)


def within_budget(
    tokenizer: Any,
    examples: Iterable[Example],
    *,
    module_tokens: int = MODULE_TOKENS,
    prompt_tokens: int = PROMPT_TOKENS,
) -> tuple[Example, ...]:
    """Return the examples whose answer and first prompt are short enough, in order."""
    asks = ChatText(tokenizer)
    return tuple(
        example
        for example in examples
        if _length(tokenizer, example.answer) <= module_tokens
        and len(asks.prompt(example.messages[:1])[0]) <= prompt_tokens
    )


def _length(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])
