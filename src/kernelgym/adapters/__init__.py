"""Adapters: episodes and verdicts in the interfaces of other projects, one module per project.

`frameworks` checks a framework's version, `live_episode` plays the episodes; adapters of frameworks
stand on these two and never import each other. The frameworks' versions are the extras in
pyproject.toml, and docs/adapters.md says what of an episode each framework passes on.
"""
