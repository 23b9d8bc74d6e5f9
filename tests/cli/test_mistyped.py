"""What the command says to a word that it does not know."""

from __future__ import annotations

import pytest

from kernelgym import __version__


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("chek", "x.py"), "unknown command 'chek'; did you mean check?; known: ls, show, check"),
        (("--vers",), "unknown option '--vers'; did you mean --version?"),
        (
            ("check", "x.py", "--problme", "3"),
            "'--problme'; did you mean --problem?",
        ),
        (("check", "x.py", "--languge=cpp"), "unknown option '--languge'; did you mean --language"),
        (("-v", "ls", "--lvel"), "unknown option '--lvel'; did you mean --level?"),
        (("check", "a", "b"), "`kernelgym check` takes no argument b; known: --verbose, "),
        (("ls", "--level", "x"), "--level takes a whole number, got 'x'"),
        (("check", "a", "--workers", "1.5"), "--workers takes a whole number, got '1.5'"),
        (("show-trajectory", "f", "--gamma", "x"), "--gamma takes a number, got 'x'"),
        (("play", "--agent", "robot"), "invalid choice 'robot' for argument '--agent'"),
    ],
)
def test_word_mistyped_is_corrected_in_a_line(run, argv: tuple[str, ...], says: str) -> None:
    code, out, err = run(*argv)
    assert (code, out) == (2, "") and says in err
    line = err.splitlines()[-1]
    assert line.startswith("kernelgym: error: ") and " --help`" in line


def test_version_is_printed(run) -> None:
    assert run("--version") == (0, f"kernelgym {__version__}\n", "")
