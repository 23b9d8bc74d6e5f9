"""The learning demonstration: a small model learns to write kernels from nothing but verdicts.

Problems, what the warm start reads and its tokens follow from a seed and need neither model nor
judge (`splits`, `dialogue`, `corpus`, `tokenizer`). The problems are left as folders (`folders`).
Models are made and fitted (`model`, `warmstart`), trained by the project's own loop (`learning`)
and played on held-out problems (`heldout`, `scores`, `intervals`); what they read is the short
prompt (`kernelgym.prompts.short`).

The room may import kernelgym and every room of kernelgym_train but `mcgs` and `adapters`.
"""
