"""Pages of a report: templates, the data that they show, and charts; pages load nothing.

May import all of `kernelgym.benchmark` but `interchange` and `reporting`.
"""
