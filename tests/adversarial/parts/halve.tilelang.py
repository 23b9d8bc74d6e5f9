@tilelang.jit(out_idx=[-1])
def halve_of(n, dtype, block=1024, threads=128):
    @T.prim_func
    def main(x: T.Tensor((n,), dtype), y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
            for i in T.Parallel(block):
                value = T.cast(x[bx * block + i], "float32")
                y[bx * block + i] = T.cast(value * 0.5, dtype)

    return main


kernels = {}


def halve(x):
    key = x.numel(), str(x.dtype).removeprefix("torch.")
    if key not in kernels:
        kernels[key] = halve_of(*key)
    return kernels[key](x.contiguous().view(-1)).view(x.shape)
