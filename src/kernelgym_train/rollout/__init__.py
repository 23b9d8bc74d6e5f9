"""Episodes played with a policy: problems drawn, turns, records."""
