"""Evaluators that wrap another evaluator, to cache its verdicts or to make it awaitable."""
