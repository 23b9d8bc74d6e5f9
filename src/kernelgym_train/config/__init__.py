"""Settings of a training run: their sections, how they are read, and which of them fit together.

The room may import `kernelgym`, `kernelgym_train.credit`, `metrics` and `rollout`; it looks at
backends only when it checks the settings of the one that was chosen.
"""
