@triton.jit
def layernorm_kernel(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0)
    value = tl.where(inside, value - tl.sum(value) / columns, 0.0)
    value *= 1.0 / tl.sqrt(tl.sum(value * value) / columns + eps)
    value *= tl.load(weight + at, mask=inside, other=0.0)
    value += tl.load(bias + at, mask=inside, other=0.0)
    tl.store(out + row * columns + at, value, mask=inside)


def layernorm(x, weight, bias, eps):
    out = torch.empty_like(x)
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    layernorm_kernel[(rows,)](x, weight, bias, out, columns, eps, BLOCK=block)
    return out
