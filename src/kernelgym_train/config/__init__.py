"""What can be set for a run, read and checked."""
