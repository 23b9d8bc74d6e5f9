"""The trusted side of the sandbox: what may be read, which tier the host allows."""
