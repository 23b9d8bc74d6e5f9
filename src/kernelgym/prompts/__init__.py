"""What a model reads: the problem, worked examples, earlier turns."""
