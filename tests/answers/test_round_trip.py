"""A module is read back as itself, whatever markers it holds and whatever an answer adds to it."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym.answers.parsing import parse

_LINES = (
    *("```", "```python", "~~~", "````", "    ```", "```\nlayer = ModelNew()\n```"),
    *("<KERNEL>", "</KERNEL>", "<think>", "</think>", "<thinking>", "write <think> first"),
    *("```python\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        ...\n```", ""),
    *("# What became of turn 1", "Feedback: wrong", "User:", "it's one's", "a # sign", 'say "so"'),
    *("<KERNEL>\n```python\nclass ModelNew: pass\n```\n</KERNEL>", "import torch", "<|im_end|>"),
)
_WORDS = tuple(line for line in _LINES if "\n" not in line and '"' not in line)
_documents = st.lists(st.sampled_from(_LINES) | st.text("ab`~<>/'# \n", max_size=9), max_size=5)


@st.composite
def modules(draw: st.DrawFn) -> str:
    """Module that defines `ModelNew`, with markers in its strings and comments."""

    def literal() -> str:
        quotes = draw(st.sampled_from(('"""', "'''", 'r"""')))
        text = "\n".join(draw(_documents)).replace(quotes[-3:], "").strip(quotes[-1])
        body = textwrap.dedent("\n".join(line.rstrip() for line in text.split("\n")))
        return f"{quotes}{body}\n{quotes[-3:]}"

    word = st.sampled_from(_WORDS)
    parts = [
        literal() if draw(st.booleans()) else f"# {draw(word)}",
        "import torch\nfrom torch import nn",
        f"MARK = {draw(word)!r}",
        f"source = {literal()}",
        f"def call(x):\n    return x * 2  # {draw(word)}",
        f"class ModelNew(nn.Module):\n{textwrap.indent(literal(), '    ')}\n"
        f"    def forward(self, x):\n        # {draw(word)}\n        return call(x) + len(MARK)",
        f"# {draw(word)}" if draw(st.booleans()) else "",
    ]
    source = "\n\n".join(part.rstrip() for part in parts if part) + "\n"
    ast.parse(source)
    return source


def _ticks(source: str) -> str:
    return "`" * (3 + source.count("`"))


STUB = "class ModelNew(nn.Module):\n    def forward(self, x):\n        ...\n"
WHOLE_STUB = f"import torch\nfrom torch import nn\n\n\n{STUB}"
OTHER = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x\n"

WRAPPINGS: Mapping[str, Callable[[str], str]] = {
    "tag and fence": lambda s: f"<KERNEL>\n```python\n{s}```\n</KERNEL>",
    "tag": lambda s: f"<KERNEL>\n{s}</KERNEL>",
    "fence": lambda s: f"Here it is.\n\n```python\n{s}```\n\nIt fuses both.",
    "fence without a language": lambda s: f"```\n{s}```",
    "tildes": lambda s: f"~~~~~ py\n{s}~~~~~\n",
    "longer fence": lambda s: f"{_ticks(s)}python\n{s}{_ticks(s)}\n",
    "indented fence": lambda s: (
        "1. The module:\n" + textwrap.indent(f"```python\n{s}```\n", "   ", lambda _: True)
    ),
    "windows lines": lambda s: f"<KERNEL>\n```python\n{s}```\n</KERNEL>".replace("\n", "\r\n"),
    "thinking first": lambda s: f"<think>\na plan\n</think>\n```python\n{s}```",
    "open thinking": lambda s: f"one pass\n</think>\n\n<KERNEL>\n{s}</KERNEL>",
    "draft in thinking": lambda s: f"<think>\n```python\n{OTHER}```\n</think>\n```\n{s}```",
    "unclosed draft": lambda s: f"<think>\n```python\n{OTHER}</think>\n```python\n{s}```",
    "unclosed thinking": lambda s: f"<think>\none pass\n\n<KERNEL>\n```python\n{s}```\n</KERNEL>",
    "mention in ticks": lambda s: f"I skip `<think>` here.\n<KERNEL>\n```python\n{s}```\n</KERNEL>",
    "mention in prose": lambda s: f"I skip the <think> part.\n<KERNEL>\n{s}</KERNEL>\nDone.",
    "mention after": lambda s: f"<KERNEL>\n{s}</KERNEL>\nNo <think> and no </think> was needed.",
    "mention of the tag": lambda s: f"I use <KERNEL> as asked.\n<KERNEL>\n{s}</KERNEL>",
    "stub after": lambda s: f"```python\n{s}```\nIts interface:\n```python\n{STUB}```",
    "stub with imports after": lambda s: f"```\n{s}```\nUsage:\n```\n{WHOLE_STUB}```\n",
    "stub in a tag": lambda s: f"```python\n{s}```\nThat is <KERNEL>\n{STUB}</KERNEL>.",
    "usage after": lambda s: f"```python\n{s}```\n```python\nprint(ModelNew()(1))\n```\n",
    "shell before": lambda s: f"```bash\npip install 'triton'\n```\n```python\n{s}```\n",
    "draft before": lambda s: f"```python\n{OTHER}```\nBetter:\n```python\n{s}```\n",
    "cut fence": lambda s: f"Here:\n```python\n{s}",
    "cut tag": lambda s: f"<KERNEL>\n```python\n{s}```\n",
    "fence around a tag": lambda s: f"```python\n<KERNEL>\n{s}</KERNEL>\n```\n",
    "fence in a fence": lambda s: f"~~~markdown\n```python\n{s}```\n~~~\n" if "~" not in s else s,
    "continued fence": lambda s: f"{s}```\nIt fuses both.\n```python\nModelNew()(1)\n```\n",
    "continued language": lambda s: f"python\n{s}```\nIt fuses both.\n",
    "continued tag": lambda s: f"{s}```\n</KERNEL>\n\nI chose a block of 256.\n",
    "continued after thinking": lambda s: f"one pass\n</think>\n{s}```\nIt fuses both.\n",
    "stop token": lambda s: f"```python\n{s}```<|im_end|>\n<|im_start|>user\n```\n{OTHER}```",
    "bare in prose": lambda s: f"Sure.\n\n{s}\nIt fuses both steps.\n",
    "bare": lambda s: s,
    "invented feedback": lambda s: (
        f"<KERNEL>\n{s}</KERNEL>\n\n# What became of turn 1\n\nYour kernel is wrong.\n\n"
        f"<think>\nso mend it\n</think>\n<KERNEL>\n{OTHER}</KERNEL>\n"
    ),
    "invented turn": lambda s: (
        f"```python\n{s}```\n<|im_end|>\n<|im_start|>user\nfaster\n```python\n{OTHER}```\n"
    ),
    "invented label": lambda s: f"```\n{s}```\n**Feedback:** too slow\n\nSo:\n```\n{OTHER}```\n",
}


@pytest.mark.parametrize("name", sorted(WRAPPINGS))
@settings(max_examples=50)
@given(source=modules())
def test_parse_any_module_in_a_wrapping_returns_it(name: str, source: str) -> None:
    kernel = parse(WRAPPINGS[name](source), "triton").kernel
    assert kernel is not None
    assert kernel.source == source
