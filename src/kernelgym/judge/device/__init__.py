"""One device of this machine: lock, health, memory budget."""
