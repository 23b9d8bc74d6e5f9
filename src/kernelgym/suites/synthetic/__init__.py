"""Procedural problems in KernelBench's format, with right and wrong kernels for each.

`SyntheticSuite` lists the problems. `solve` writes a correct kernel for any of them,
`broken_variants` writes typical broken ones with the verdict each gets, and `canonical_form` says
which problems count as the same.

Everything is text made from a seed: nothing here imports PyTorch, runs a problem or judges one.
"""

from kernelgym.suites.synthetic.broken import BrokenKernel, broken_variants
from kernelgym.suites.synthetic.canonical import PARTS, Part, part_of
from kernelgym.suites.synthetic.operators import Target
from kernelgym.suites.synthetic.solve import reaches, solve
from kernelgym.suites.synthetic.style import Defect
from kernelgym.suites.synthetic.suite import SyntheticSuite, canonical_form, respelled

__all__ = [
    "PARTS",
    "BrokenKernel",
    "Defect",
    "Part",
    "SyntheticSuite",
    "Target",
    "broken_variants",
    "canonical_form",
    "part_of",
    "reaches",
    "respelled",
    "solve",
]
