"""kernelgym."""
