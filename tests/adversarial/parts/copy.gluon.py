@gluon.jit
def copy_kernel(x, out, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    value = gl.load(x + at, mask=at < n, other=0.0)
    gl.store(out + at, value, mask=at < n)


def copy(x, out=None):
    x = x.contiguous()
    out = torch.empty_like(x) if out is None else out
    layout = gl.BlockedLayout([4], [32], [4], [0])
    grid = (triton.cdiv(x.numel(), 1024),)
    copy_kernel[grid](x, out, x.numel(), 1024, layout, num_warps=4)
    return out
