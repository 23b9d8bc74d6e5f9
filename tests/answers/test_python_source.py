from __future__ import annotations

import ast
import subprocess
import sys
import warnings

import pytest
from hypothesis import given

from kernelgym.answers.python_source import (
    MAX_SOURCE_CHARS,
    UnreadableSource,
    normal_form,
    read_python,
)
from kernelgym.testing import SAMPLE_KERNELS
from support.strategies import python_like, texts

HOSTILE = {
    "parentheses": "(" * 100_000,
    "closed parentheses": "(" * 100_000 + ")" * 100_000,
    "braces": "{" * 100_000,
    "unary minus": "-" * 100_000 + "1",
    "attributes": "a" + ".b" * 100_000,
    "sums": "+".join(["1"] * 100_000),
    "lambdas": "lambda:" * 50_000 + "1",
    "elifs": "if a:\n pass\n" + "elif a:\n pass\n" * 20_000,
    "indentation": "".join(" " * i + "if 1:\n" for i in range(120)),
    "surrogate": "x = '\ud800'",
    "nul": "x = 1\0",
    "calls": "f(" * 190,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sources_are_unreadable(name: str) -> None:
    found = read_python(HOSTILE[name])
    assert isinstance(found, UnreadableSource)
    assert found.code == "syntax_error"
    assert found.message


def test_what_is_wrong_with_a_source_is_said_with_its_line() -> None:
    assert read_python("x = 1\ny = (\n") == UnreadableSource(
        "syntax_error", "SyntaxError: '(' was never closed", 2
    )
    surrogate = read_python("x = '\ud800'")
    assert isinstance(surrogate, UnreadableSource) and "valid Unicode" in surrogate.message


def test_a_source_over_the_limit_is_not_parsed() -> None:
    found = read_python("x = 1\n" * (MAX_SOURCE_CHARS // 6 + 1))
    assert isinstance(found, UnreadableSource)
    assert found.code == "too_large"


@given(texts | python_like())
def test_reading_never_raises(text: str) -> None:
    assert isinstance(read_python(text), ast.Module | UnreadableSource)


def test_escapes_of_c_are_no_error_even_where_warnings_are() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(read_python(r'source = "printf(\"%d\%\d\");"'), ast.Module)


def test_hostile_sources_do_not_crash_the_interpreter_in_a_thread() -> None:
    # A thread's C stack is smaller; a crash would end this process, hence another one.
    program = (
        "import threading\n"
        "from kernelgym.answers.python_source import UnreadableSource, read_python\n"
        "sources = ['(' * 10**5, '-' * 10**5 + '1', 'a' + '.b' * 10**5, '+'.join(['1'] * 10**5)]\n"
        "seen = []\n"
        "def work():\n"
        "    seen.extend(isinstance(read_python(s), UnreadableSource) for s in sources)\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "thread.join()\n"
        "print(seen)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str([True] * 4), done.stderr


def test_normal_form_ignores_spacing_that_cannot_matter() -> None:
    source = SAMPLE_KERNELS["cuda"].source
    spaced = source.replace("\n", "  \r\n\r\n")
    assert normal_form(spaced) == normal_form(source)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 2"),
        ("if a:\n    b", "if a:\nb"),
        ('s = """\n#define A\n"""', 's = """\n"""'),
        ("x = \\\n1", "x = \\ \n1"),
        ("x  = 1", "x = 1"),
    ],
)
def test_normal_form_keeps_what_may_matter(one: str, other: str) -> None:
    assert normal_form(one) != normal_form(other)


@given(python_like())
def test_normal_form_keeps_the_tree_without_its_strings(source: str) -> None:
    tree = read_python(source)
    if isinstance(tree, ast.Module) and '"""' not in source:
        normal = read_python(normal_form(source))
        assert isinstance(normal, ast.Module)
        assert ast.dump(normal) == ast.dump(tree)
