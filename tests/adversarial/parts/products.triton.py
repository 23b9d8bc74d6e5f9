@triton.jit
def product_kernel(
    x, w, out, N, step, across, K: tl.constexpr, UNIT: tl.constexpr, RELU: tl.constexpr
):
    m = tl.program_id(0) * 32 + tl.arange(0, 32)
    n = tl.program_id(1) * 32 + tl.arange(0, 32)
    total = tl.zeros((32, 32), dtype=tl.float32)
    squares = tl.zeros((32,), dtype=tl.float32)
    for start in range(0, K, 32):
        k = start + tl.arange(0, 32)
        left = tl.load(x + m[:, None] * K + k[None, :])
        right = tl.load(w + n[None, :] * step + k[:, None] * across)
        total += tl.dot(left, right, input_precision="ieee")
        squares += tl.sum(right * right, axis=0)
    if UNIT:
        total /= tl.maximum(tl.sqrt(squares), 1e-12)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(out + m[:, None] * N + n[None, :], total)


def product(x, weight, unit=False, relu=False):
    (m, k), n = x.shape, weight.shape[0]
    out = torch.empty(m, n, device=x.device)
    product_kernel[(m // 32, n // 32)](
        x, weight, out, n, *weight.stride(), K=k, UNIT=unit, RELU=relu
    )
    return out
