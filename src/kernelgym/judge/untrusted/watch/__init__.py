"""What a watched call does: launches, torch operators, host memory."""
