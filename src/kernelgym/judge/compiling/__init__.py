"""C++ and CUDA extensions built for candidates, and the tools that Triton needs."""
