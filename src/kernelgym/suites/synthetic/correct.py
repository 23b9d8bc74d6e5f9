"""Correct kernels for any problem of the suite."""

from __future__ import annotations

from typing import Literal

from kernelgym.errors import UnsupportedLanguage
from kernelgym.suites.synthetic.solve import write_cpp, write_triton
from kernelgym.suites.synthetic.source import spec_of
from kernelgym.types import Kernel, Problem

__all__ = ["Target", "check_target", "correct_cpp", "correct_triton", "solve"]

Target = Literal["triton", "cpp"]


def check_target(language: str) -> None:
    """Make sure that kernels can be written in a language.

    Raises:
        UnsupportedLanguage: If they cannot.
    """
    if language not in ("triton", "cpp"):
        raise UnsupportedLanguage(
            f"the Synthetic suite writes no kernels in {language!r}; it writes triton and cpp"
        )


def correct_triton(problem: Problem, style_seed: int = 0) -> str:
    """Return a correct Triton module for a problem.

    Args:
        problem: A problem of this suite.
        style_seed: Varies skeleton, block sizes, names and argument order.

    Raises:
        ProblemError: If the problem is not one of this suite's.
    """
    return write_triton(spec_of(problem), style_seed)


def correct_cpp(problem: Problem, style_seed: int = 0) -> str:
    """Return a correct C++ module for a problem; otherwise as `correct_triton`."""
    return write_cpp(spec_of(problem), style_seed)


def solve(problem: Problem, language: Target = "triton", style_seed: int = 0) -> Kernel:
    """Return a correct kernel for a problem.

    Raises:
        ProblemError: If the problem is not one of this suite's.
        UnsupportedLanguage: If `language` is neither ``triton`` nor ``cpp``.
    """
    check_target(language)
    write = correct_triton if language == "triton" else correct_cpp
    return Kernel(write(problem, style_seed), language)
