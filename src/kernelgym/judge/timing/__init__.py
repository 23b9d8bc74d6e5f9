"""Windows of both sides, and the speedup they give."""
