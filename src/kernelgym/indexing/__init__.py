"""Indexing: indexes of solved problems are built, verified and tested for leaks.

- `corpora`: data sets, files and trajectories read into entries; `archives`, `rows`, `sources`: two
  public archives, rows of files and of the hub, edits of a module's text
- `judging`: verdicts of a build; `copies`: entries that solve held-out problems
- `build`: makes a folder that `kernelgym.retrieval.folder` reads
- `played`, `growing`: entries of episodes, and the archive that grows during a training run

May import `retrieval`, the rooms that it may import, `episodes` and `records`.
"""
