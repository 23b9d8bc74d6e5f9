"""Memory that both sides of a verdict map."""
