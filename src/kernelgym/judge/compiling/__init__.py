"""Builds C++ and CUDA extensions for candidates, and runs the tools that Triton needs."""
