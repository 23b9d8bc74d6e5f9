"""Episodes: the turn machine, which does no IO, the rules that end it, and the loop that plays it.

The room may import the nouns, `languages`, `answers`, `prompts`, `feedback` and `rewards`.
"""
