"""One episode, turn by turn, and the one loop that plays it."""
