"""OpenEnv's server of kernelgym's environments."""
