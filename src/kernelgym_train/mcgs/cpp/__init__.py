"""C++ text: parsing, loop nests, proofs about them, and edits.

Imports nothing else of the search.
"""
