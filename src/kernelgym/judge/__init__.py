"""The judge: runs untrusted kernels, checks their results and times them."""

from kernelgym.judge.device.lock import device_lock
from kernelgym.judge.local import LocalEvaluator
from kernelgym.judge.shared import shared_evaluator

__all__ = ["LocalEvaluator", "device_lock", "shared_evaluator"]
