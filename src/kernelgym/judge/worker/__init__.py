"""The trusted worker: takes jobs, judges each, answers verdicts.

The room may import the nouns of kernelgym, `languages`, and every room of the judge but `lint`
and `measuring`.
"""
