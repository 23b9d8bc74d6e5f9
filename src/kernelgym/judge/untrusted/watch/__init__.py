"""Records what a watched call does: launches, torch operators, host memory."""
