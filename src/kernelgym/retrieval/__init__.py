"""Retrieval: solved problems that resemble the one asked, found offline and shown in the prompt.

- `entry`: one solved problem of an index; `page`: how entries are shown
- `operators`, `names`, `idioms`, `kinds`, `source`: the operators that a reference computes
- `embedding`, `models`: vectors of references; `search`: the nearest rows of a matrix
- `index`: exact search over entries; `folder`: an index on disk; `synthetic`: the embedded index
- `exclusion`: entries that would give a problem's answer away
- `archive`: what a training run found itself; `part`: the observer's part that shows entries

May import the package's top-level files, `answers`, `languages`, `prompts` and `suites`.
"""
