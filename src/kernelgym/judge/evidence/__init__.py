"""Evidence that custom kernels, not torch, did the work."""
