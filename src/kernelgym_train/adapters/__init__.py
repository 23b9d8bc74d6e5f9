"""Episodes for other projects' trainers; one module a project.

The room may import kernelgym, `config`, `launch` and `rollout`; adapters never import each other.
"""
