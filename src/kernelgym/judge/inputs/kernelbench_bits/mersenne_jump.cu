// One block for each new place: `states[have + block]` lies one jump behind `states[block]`. A
// thread adds up one of its 624 words, over the sequence's words at which the polynomial has a bit.
extern "C" __global__ void jump(
    unsigned *states, const unsigned *bits, int have) {
    const unsigned t = threadIdx.x;
    const unsigned n = 624, m = 397;
    __shared__ unsigned x[2 * 624];
    auto next = [&](unsigned k) {
        unsigned y = (x[k] & 0x80000000u) | (x[k + 1] & 0x7fffffffu);
        x[k + n] = x[k + m] ^ (y >> 1) ^ ((y & 1u) * 0x9908b0dfu);
    };
    unsigned sum = 0;
    if (t < n) x[t] = states[(size_t)blockIdx.x * n + t];
    for (int chunk = 0; chunk < @CHUNKS@; ++chunk) {
        __syncthreads();
        for (unsigned start = 0; start < n; start += n - m) {
            unsigned k = start + t;
            if (t < n - m && k < n) next(k);
            __syncthreads();
        }
        if (t < n) {
            for (int word = 0; word < @CHUNK_WORDS@; ++word) {
                unsigned left = bits[chunk * @CHUNK_WORDS@ + word];
                while (left) {
                    sum ^= x[word * 32 + __ffs(left) - 1 + t];
                    left &= left - 1;
                }
            }
        }
        __syncthreads();
        if (t < n) x[t] = x[t + n];
    }
    if (t < n) states[((size_t)have + blockIdx.x) * n + t] = sum;
}
