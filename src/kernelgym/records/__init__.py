"""Episodes in files: read, written, scored again, exported."""
