"""Building an index, verifying its kernels, and testing it for leaks.

`corpora` reads data sets, files and trajectories into entries; `build` makes a folder of them that
`kernelgym.retrieval.folder` reads; `judging` asks a judge which kernels are correct; `copies` finds
entries that solve held-out problems; `coverage` says which problems an index was tested for.
"""
