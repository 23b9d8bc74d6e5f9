"""Patches of models: applied exactly once, or refused with a reason."""

from __future__ import annotations

import difflib
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgym_train.mcgs.files import diff_of
from kernelgym_train.mcgs.writing.patches import PatchRefused, apply_patch, read_patch

NAME = "kernel_module.py"
TEXT = "import torch\n\ndef one():\n    return 1\n\ndef two():\n    return 2\n"

LINES = st.lists(
    st.sampled_from(["a", "b", "", "  c", "\td", "- e", "+f", "@@", "--- x"]), max_size=9
)
ANY_LINES = st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n")))


def patched(text: str, answer: str) -> str:
    return apply_patch(text, read_patch(answer, NAME))


def refused(text: str, answer: str) -> str:
    with pytest.raises(PatchRefused) as caught:
        patched(text, answer)
    return caught.value.kind


def block(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n"


@given(LINES, LINES, st.booleans(), st.integers(0, 3))
@settings(max_examples=400, deadline=None)
def test_diff_of_any_two_texts_is_applied_as_it_says(
    before: list[str], after: list[str], ends: bool, context: int
) -> None:
    """The line numbers of a sound diff choose among equal places."""
    old, new = (f"x\n{chr(10).join(lines)}\ny{chr(10) * ends}" for lines in (before, after))
    rows = difflib.unified_diff(
        old.split("\n"), new.split("\n"), f"a/{NAME}", f"b/{NAME}", "", "", max(context, 1), ""
    )
    if old == new:
        return
    try:
        assert patched(old, "\n".join(rows)) == new
    except PatchRefused as error:  # a blank line alone is no place
        assert error.kind == "malformed"


@given(LINES, LINES)
@settings(max_examples=200, deadline=None)
def test_blocks_are_applied_once_or_refused(before: list[str], after: list[str]) -> None:
    """Where the whole text is the block, the result is the new text."""
    old, new = "\n".join(["x", *before, "y"]), "\n".join(["x", *after, "z"])
    assert patched(old, block(old, new)) == new
    twice = f"{old}\n{old}"
    assert refused(twice, block(old, new)) == "ambiguous"


@given(ANY_LINES, ANY_LINES, st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_written_diff_is_applied_by_git_and_patch(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[str],
    after: list[str],
    old_ends: bool,
    new_ends: bool,
) -> None:
    old = "\n".join(["class ModelNew:", *before]) + "\n" * old_ends
    new = "\n".join(["class ModelNew:", "    pass", *after]) + "\n" * new_ends
    if "\0" in old + new or old == new:
        return  # no text of a module
    diff = diff_of(old, new).encode()
    for command in (["git", "apply", "-"], ["patch", "-p1", "-s"]):
        folder = tmp_path_factory.mktemp("apply")
        (folder / NAME).write_bytes(old.encode())
        subprocess.run(command, cwd=folder, check=True, input=diff)
        assert (folder / NAME).read_bytes() == new.encode(), command


@pytest.mark.parametrize("name", ["kernel.cpp", "my kernel.cpp", "src/a b/k.cpp"])
@pytest.mark.parametrize("command", ["git apply -", "patch -p1 -s"])
def test_written_diff_of_any_name_is_applied(name: str, command: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a\nb\n")
    diff = diff_of("a\nb\n", "a\nc", name).encode()
    subprocess.run(command.split(), cwd=tmp_path, check=True, input=diff)
    assert file.read_text() == "a\nc"


def test_diff_with_wrong_numbers_is_applied_by_its_lines() -> None:
    change = "@@ -90,7 +12,1 @@\n def two():\n-    return 2\n+    return 3\n"
    answer = f"--- a/{NAME}\n+++ b/{NAME}\n{change}"
    assert patched(TEXT, answer) == TEXT.replace("return 2", "return 3")
    assert patched(TEXT, re.sub("@@.*@@", "@@ ... @@", answer)) == TEXT.replace("2", "3")
    assert patched(TEXT, f"```diff\n{answer}\n```\nThat is all.") == TEXT.replace("2", "3")


def test_several_changes_are_applied_together() -> None:
    answer = (
        block("    return 1", "    return 10") + "and\n" + block("    return 2", "    return 20")
    )
    made = TEXT.replace("return 1", "return 10").replace("return 2", "return 20")
    assert patched(TEXT, answer) == made


def test_ends_of_lines_that_stay_are_kept() -> None:
    text = "a = 1  \r\nb = 2\r\nc = 3\r\n"
    assert patched(text, block("a = 1\nb = 2", "a = 1\nb = 4")) == "a = 1  \r\nb = 4\nc = 3\r\n"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (block("    return 4", "    return 5"), "not_found"),
        (block("   return 1", "   return 5"), "not_found"),
        (block("", "x = 1"), "malformed"),
        ("<<<<<<< SEARCH\n    return 1\n=======\n    return 5\n", "malformed"),
        ("<<<<<<< SEARCH\n    return 1\n", "malformed"),
        (block("    return 1", "    return 1"), "no_change"),
        (block("def one():\n    return 1", "x") + block("    return 1", "y"), "overlap"),
        ("--- a/../x.py\n+++ b/../x.py\n@@ -1 +1 @@\n-import torch\n+import os\n", "other_file"),
        ("--- /dev/null\n+++ b/kernel_module.py\n@@ -0,0 +1 @@\n+import os\n", "other_file"),
        ("--- a/kernel_module.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-import torch\n", "other_file"),
        (
            "diff --git a/kernel_module.py b/x.py\nrename from kernel_module.py\nrename to x.py\n",
            "other_file",
        ),
        (f"--- a/{NAME}\n+++ b/{NAME}\n@@ -1,2 +1,2 @@\n import numpy\n-\n+x = 1\n", "not_found"),
    ],
)
def test_patch_that_does_not_apply_is_refused(answer: str, kind: str) -> None:
    assert refused(TEXT, answer) == kind


def test_text_without_a_patch_has_no_hunks() -> None:
    assert read_patch("Use fewer passes.\n---\nThat helps.", NAME) == ()
