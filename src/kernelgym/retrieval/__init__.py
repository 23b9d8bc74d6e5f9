"""Retrieval: solutions of similar problems, found offline and shown in the prompt.

The pure half lives here: `entry` (what is shown), `operators` and `names` (what is embedded),
`embedding`, `index` (exact search), `exclusion` (what would give the answer away), `cover` (which
of the similar are shown), `synthetic` (the embedded corpus) and `part` (the observer's part).
"""
