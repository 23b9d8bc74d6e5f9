"""Builds the sandbox from inside the process that it confines."""
