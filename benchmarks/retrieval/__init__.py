"""How well retrieval finds similar problems, and what it finds that it must not show."""
