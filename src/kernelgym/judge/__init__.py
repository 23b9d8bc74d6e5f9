"""The judge: runs untrusted kernels and says whether they are right and how fast they are."""

from kernelgym.judge.local import LocalEvaluator
from kernelgym.judge.shared import shared_evaluator

__all__ = ["LocalEvaluator", "shared_evaluator"]
