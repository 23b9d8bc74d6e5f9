"""Moves: changes that keep what a kernel computes, one file each."""
