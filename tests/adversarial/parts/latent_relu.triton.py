@triton.jit
def latent_relu_kernel(x, out, n, BLOCK: tl.constexpr):
    """Take long, but few processors: calls of it can run beside each other."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + at, mask=mask, other=0.0)
    for _ in range(64):  # each load waits for the last one
        value = tl.load(x + at + tl.where(value > 1e30, 1, 0), mask=mask, other=0.0, volatile=True)
    tl.store(out + at, tl.maximum(value, 0.0), mask=mask)


def latent_relu(x, out):
    latent_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
