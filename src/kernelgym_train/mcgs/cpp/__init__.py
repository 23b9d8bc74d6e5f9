"""Reads C++: text, loop nests, and what can be proven of them."""
