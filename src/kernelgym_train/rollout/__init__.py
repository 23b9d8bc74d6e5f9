"""Episodes played with a policy: problems drawn, turns, records.

The room may import kernelgym, `kernelgym_train.types`, `config`, `credit` and `metrics`.
"""
