"""The red team's corpus: known exploits and honest look-alikes, and how the judge did.

The room may import the nouns of kernelgym and `languages`.
"""
