"""The degeneracy gate: finds problems that a kernel can pass without doing the work."""
