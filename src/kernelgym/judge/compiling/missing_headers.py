"""Decides from compiler errors whether to compile a unit again with torch's real headers.

Reads the messages of g++, of nvcc's front end (EDG) and of clang.
"""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

# The log may quote a hostile source that is made to slow the search down. Every repetition below
# is possessive and ends at a quote, so a line is searched in linear time. The length and the number
# of lines are limited, too.
_NOT_A_MEMBER = re.compile(
    r"[‘'](\w++)[^‘’']*+[’'] is not a member of [‘'](?:torch|at|c10|pybind11|py)\b|"
    r"[‘'](\w++)[^‘’']*+[’'] in namespace [‘'](?:torch|at|c10|pybind11|py)\b|"
    r'namespace "(?:torch|at|c10|pybind11|py|std)\b[\w:]*+" has no member "(\w++)"|'
    r"no (?:member|type|template) named '(\w++)' in namespace '(?:torch|at|c10|pybind11|py|std)\b"
)
_UNDECLARED = re.compile(
    r"[‘'](?:torch::|at::|c10::)?+(\w++)[^‘’']*+[’'] "
    r"(?:was not declared|has not been declared|does not name a type|is not a class)|"
    r'identifier "(\w++)" is undefined|'
    r"(?:undeclared identifier|unknown type name) '(\w++)'"
)
_NO_NAMESPACE = 'name followed by "::" must be a class or namespace name'
_QUALIFIED = re.compile(r"\b(?:torch|at|c10|pybind11|py)::(\w++)")
# An error within torch's headers or the thin ones may come from a missing declaration.
_IN_HEADERS = re.compile(r"/torch/include/|/judge/compiling/thin/|\bATen/core/")
_MISSING = re.compile(
    r"has no member|is not a member|is undefined|not declared|not defined|is not a template|"
    r"no member named|undeclared|does not name|must be a class or namespace|no instance of|"
    r"no matching|inherited"
)
_NEEDS_A_FILE = re.compile(r"(?:torch|ATen|c10|pybind11)/|Python\.h")
_SIGNS_OF_REAL_HEADERS = (
    "incomplete type",
    "type is incomplete",
    "expected constructor, destructor, or type conversion before",
)
_ERROR_LINES, _ERROR_CHARACTERS = 300, 500
_NAMESPACES = frozenset({"py", "pybind11", "torch", "at", "c10", "nn", "autograd"})
_CUDA_HEADER = re.compile(r"#\s*include\s*[<\"](?:ATen|c10)/(?:cuda|hip)/")


def missing_from_thin(log: str, source: str = "") -> bool:
    """Return True if torch's real headers might remove the errors.

    True if an undeclared name occurs in torch's headers, or a type cannot be bound without
    pybind11. False for an ordinary mistake, which must not be compiled twice.

    Args:
        log: The compiler's output.
        source: The candidate's text. Names of torch's CUDA headers count only if it includes one.
    """
    if "is defined in header" in log:
        return True
    lines = [line[:_ERROR_CHARACTERS] for line in log.splitlines()]
    numbers = (number for number, line in enumerate(lines) if "error:" in line)
    names: set[str] = set()
    for number in itertools.islice(numbers, _ERROR_LINES):
        line = lines[number]
        kind, _, text = line.partition("error: ")
        if "kernelgym::Kind<" in line or any(sign in text for sign in _SIGNS_OF_REAL_HEADERS):
            return True
        if kind.endswith("fatal ") and _NEEDS_A_FILE.search(text):
            return True
        if _IN_HEADERS.search(kind) and _MISSING.search(text):
            return True
        names.update(name for found in _NOT_A_MEMBER.findall(line) for name in found if name)
        if _NO_NAMESPACE in text:  # the next line of the log quotes the source, with the name
            names.update(_QUALIFIED.findall("".join(lines[number + 1 : number + 2])))
        # A name without a namespace can come from torch only if it is a macro or itself one of the
        # namespaces. Any other is a mistake of the author, even if the word occurs in torch's
        # headers.
        bare = (next(filter(None, found)) for found in _UNDECLARED.findall(line))
        names.update(name for name in bare if name.isupper() or name in _NAMESPACES)
    return not names.isdisjoint(_torch_words(_CUDA_HEADER.search(source) is not None))


@functools.lru_cache(maxsize=2)
def _torch_words(cuda: bool) -> frozenset[str]:
    """Return the words in the headers of torch and pybind11, to find missing headers by.

    Those of its CUDA headers are included only if `cuda`: the front end includes none of them, so
    the real headers would not help a source that includes none either.
    """
    import torch

    include = Path(torch.__file__).parent / "include"
    folders = ("torch/csrc/api/include", "torch/csrc/utils", "torch/csrc/autograd", "pybind11")
    paths = [path for folder in folders for path in (include / folder).rglob("*.h")]
    patterns = ["ATen/*.h", "c10/core/*.h", "c10/macros/*.h", "c10/util/*.h", "torch/*.h"]
    if cuda:
        patterns += ["ATen/cuda/*.h", "ATen/cuda/*.cuh", "c10/cuda/*.h"]
    paths += [path for pattern in patterns for path in include.glob(pattern)]
    words: set[str] = set()
    for path in paths:
        words.update(_IDENTIFIER.findall(path.read_text(errors="replace")))
    return frozenset(words)
