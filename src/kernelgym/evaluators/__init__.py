"""Evaluators that wrap others."""
