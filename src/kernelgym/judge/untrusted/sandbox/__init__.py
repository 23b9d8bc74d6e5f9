"""Sandbox builders, run inside the process that they confine."""
