"""Search: finds a faster kernel from one that is correct."""
