"""Reading a corpus of the red team (`kernelgym.redteam.corpus`) from its folder.

A corpus is a folder with ``problems/NAME.py``, ``exploits/CLASS_slug.LANGUAGE.py`` and
``honest/slug.LANGUAGE.py``. A file is a kernel's source that begins with a header, TOML in
comments::

    # /// redteam
    # class = "A1"
    # problem = "relu"
    # devices = ["cpu", "cuda"]
    # what = "Hands out memory it never wrote to."
    # ///

Exploits may add ``accepted_if`` (``"correct"``, or ``"speedup > 1.5"``: correct, timed and
``speedup_low`` above that), ``caught_by`` (statuses or codes of which one is expected) and
``open`` (why the judge cannot catch it). Honest files have no ``class``. Either kind may add
``style``, which tells what it has in common with others: ``kernelgym redteam --sample`` judges one
kernel of each. An exploit's style is its class unless it says so, an honest kernel's its slug.

What many files share, such as an ordinary kernel behind which an exploit hides, stands once, in
``parts/FILE``. A file takes it in by a line of its own, ``# /// part FILE`` (``// /// part FILE``
in C++), which is replaced by that file's text; the kernel that is judged is the text so completed.

Nothing here runs or judges a kernel.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from kernelgym.errors import UnknownName, UsageError
from kernelgym.languages import LANGUAGES, check_language
from kernelgym.redteam.corpus import CLASSES, CorpusEntry, place

_KINDS = tuple(dict.fromkeys(kind for entry in LANGUAGES.values() for kind in entry.devices))
_OPENING, _CLOSING = "# /// redteam", "# ///"
_FOLDERS: tuple[tuple[Literal["exploit", "honest"], str], ...] = (
    ("exploit", "exploits"),
    ("honest", "honest"),
)
_FILE = re.compile(r"(?P<slug>[A-Za-z0-9_]+)\.(?P<language>[a-z]+)\.py")
_NUMBERING = "Classes have one running number over all letters: A1 to A5, B6, B7, C8, ... I23."
_PART = re.compile(r"^(?:#|//) /// part (\S+)$", re.MULTILINE)
_FASTER = re.compile(r"speedup\s*>\s*(\d+(?:\.\d+)?)")


def read_entry(
    file_name: str, kind: Literal["exploit", "honest"], source: str, problems: Collection[str]
) -> CorpusEntry:
    """Return the entry that a corpus file's name and header describe.

    Args:
        file_name: Name of the file, which holds the language and, for an exploit, the class.
        kind: Kind of kernels that the file's folder holds.
        source: Text of the file.
        problems: Names of the problems that exist.

    Raises:
        UsageError: If the name or the header is malformed; the message says what is expected.
    """
    pattern = "CLASS_slug.LANGUAGE.py" if kind == "exploit" else "slug.LANGUAGE.py"
    match = _FILE.fullmatch(file_name)
    if match is None:
        raise UsageError(f"its name must look like {pattern}")
    fields = _Fields(_header(source), kind)
    devices = fields.strings("devices", required=True)
    for device in devices:
        if device not in _KINDS:
            raise UnknownName("device kind", device, _KINDS)
        language = check_language(match["language"], device)
    problem = fields.text("problem", required=True)
    if problem not in problems:
        raise UnknownName("problem", problem, sorted(problems))
    threshold = _threshold(fields.text("accepted_if") or "correct")
    if threshold is not None:
        for device in devices:
            if not language.is_timed(device):
                raise UsageError(
                    f"accepted_if asks for a speedup, but {language.name} is not timed on "
                    f"{device!r}, so no verdict there can have one; remove it from devices"
                )
    exploit_class = _exploit_class(fields, match["slug"]) if kind == "exploit" else ""
    return CorpusEntry(
        name=file_name.removesuffix(".py"),
        kind=kind,
        problem=problem,
        language=language.name,
        devices=devices,
        what=fields.text("what", required=True),
        source=source,
        exploit_class=exploit_class,
        style=fields.text("style") or exploit_class or match["slug"],
        faster_than=threshold,
        caught_by=fields.strings("caught_by"),
        open=fields.text("open"),
    )


def load_entries(folder: Path, problems: Collection[str]) -> tuple[CorpusEntry, ...]:
    """Return a corpus: exploits by class, then honest kernels, each in the order of their names.

    Args:
        folder: Folder that holds ``exploits`` and ``honest``, of which one may be missing, and
            ``parts``, which may be missing.
        problems: Names of the problems that exist.

    Raises:
        UsageError: If the folder holds no entry, or if a file is malformed or cannot be read.
    """
    parts = {path.name: path for path in sorted((folder / "parts").glob("*.*"))}
    entries = []
    for kind, name in _FOLDERS:
        for path in sorted((folder / name).glob("*.py")):
            if path.name.startswith(("_", ".")):
                continue
            try:
                source = _with_parts(path.read_text(encoding="utf-8"), parts)
                entries.append(read_entry(path.name, kind, source, problems))
            except UsageError as error:
                raise UsageError(f"{path}: {error}") from None
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{path} cannot be read: {error}") from None
    if not entries:
        raise UsageError(
            f"{str(folder)!r} holds no corpus: it needs exploits/CLASS_slug.LANGUAGE.py or "
            "honest/slug.LANGUAGE.py (beside problems/NAME.py); name its folder with --corpus"
        )
    return tuple(sorted(entries, key=lambda entry: place(entry.exploit_class)))


def _with_parts(source: str, parts: Mapping[str, Path]) -> str:
    """Return a corpus file's text, in which the text of a part replaces each line that names it."""

    def text_of(line: re.Match[str]) -> str:
        name = line[1]
        if name not in parts:
            raise UnknownName("part", name, list(parts))
        return parts[name].read_text(encoding="utf-8").removesuffix("\n")

    return _PART.sub(text_of, source)


def _header(source: str) -> dict[str, Any]:
    # Not `splitlines`: Unicode has line separators that TOML takes for ordinary characters.
    lines = source.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if not lines or lines[0].rstrip() != _OPENING:
        raise UsageError(f"its first line must be {_OPENING!r}")
    body = []
    for line in lines[1:]:
        if line.rstrip() == _CLOSING:
            break
        if line.rstrip() != "#" and not line.startswith("# "):
            raise UsageError(f"its header is not closed by a line {_CLOSING!r}: found {line!r:.80}")
        body.append(line[2:])
    else:
        raise UsageError(f"its header is not closed by a line {_CLOSING!r}")
    try:
        return tomllib.loads("\n".join(body))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"its header is not TOML: {error}") from None


class _Fields:
    """Header fields of a corpus file; unknown fields are refused."""

    def __init__(self, header: Mapping[str, Any], kind: str) -> None:
        known = ["problem", "devices", "what", "style"]
        if kind == "exploit":
            known += ["class", "accepted_if", "caught_by", "open"]
        for name in header:
            if name not in known:
                raise UnknownName(f"field of an {kind} file's header", name, known)
        self._header = header

    def text(self, name: str, required: bool = False) -> str:
        """Return a text field of the header; empty if the header lacks it."""
        value = self._value(name, required)
        if value is None:
            return ""
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{name!r} must be text that is not empty, got {value!r:.80}")
        return value

    def strings(self, name: str, required: bool = False) -> tuple[str, ...]:
        """Return a field of the header that is a list of strings; empty if the header lacks it."""
        value = self._value(name, required)
        if value is None:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise UsageError(f"{name!r} must be a list of strings, got {value!r:.80}")
        return tuple(dict.fromkeys(value))

    def _value(self, name: str, required: bool) -> Any:
        if required and name not in self._header:
            raise UsageError(f"its header lacks {name!r}")
        return self._header.get(name)


def _exploit_class(fields: _Fields, slug: str) -> str:
    found = fields.text("class", required=True)
    if found not in CLASSES:
        raise UnknownName("class", found, CLASSES, _NUMBERING)
    if slug.partition("_")[0] != found:
        raise UsageError(f"its name must begin with its class and an underscore: '{found}_...'")
    return found


def _threshold(accepted_if: str) -> float | None:
    if accepted_if == "correct":
        return None
    match = _FASTER.fullmatch(accepted_if)
    if match is None:
        raise UsageError(
            f"'accepted_if' must be 'correct' or like 'speedup > 1.5', got {accepted_if!r}"
        )
    return float(match[1])
