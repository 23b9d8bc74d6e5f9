"""One device of this machine: its lock, health, bandwidth and memory budget."""
