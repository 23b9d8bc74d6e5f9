"""One training run on disk, step by step."""
