"""Files of played episodes: written, read, scored with another reward, and exported for training.

The room may import the nouns, `languages`, `prompts`, `rewards`, `retrieval` and `episodes`.
"""
