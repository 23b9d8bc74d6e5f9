@triton.jit
def scores_of(q, k, scale):
    return tl.dot(q, tl.trans(k), out_dtype=tl.float32) * scale
