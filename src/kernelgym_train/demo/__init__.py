"""The learning demonstration: a small model learns to write kernels from nothing but verdicts.

Problems, what the warm start reads and its tokens follow from a seed and need neither model nor
judge (`splits`, `dialogue`, `corpus`, `tokenizer`). Models are made and fitted (`model`,
`warmstart`), asked what an episode asks (`observer`), trained by the project's own loop
(`learning`) and played on held-out problems (`heldout`, `scores`, `intervals`).
"""

__all__ = ()
