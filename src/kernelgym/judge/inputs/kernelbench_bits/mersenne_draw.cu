// One block for each segment. `plan` holds: how many numbers are wanted, how many of the first 624
// words have been given out, the length of a segment, and where the 624 words start that the
// generator ends with; the block that produces them writes them to `last`.
extern "C" __global__ void draw(
    float *out, const unsigned *states, unsigned *last, const long long *plan) {
    const unsigned n = 624, m = 397, mask = 1023;
    const unsigned t = threadIdx.x, width = blockDim.x;
    const long long count = plan[0], given = plan[1], segment = plan[2];
    const long long begin = blockIdx.x * segment;
    const bool is_last = blockIdx.x + 1 == gridDim.x;
    long long end = begin + segment < count ? begin + segment : count;
    const long long last_at = plan[3] - begin;
    const bool keeps = last_at >= 0 && (last_at < segment || is_last);
    long long stop = end - begin + given;
    if (keeps && last_at + n > stop) stop = last_at + n;
    __shared__ unsigned x[1024];
    auto give = [&](long long place, unsigned word) {
        if (keeps && place >= last_at && place < last_at + n) last[place - last_at] = word;
        const long long at = begin + place - given;
        if (place < given || at >= end) return;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c5680u;
        word ^= (word << 15) & 0xefc60000u;
        word ^= word >> 18;
        out[at] = (float)(word & 0xffffffu) * 5.9604644775390625e-8f;
    };
    for (unsigned k = t; k < n; k += width) {
        const unsigned word = states[(size_t)blockIdx.x * n + k];
        x[k] = word;
        give(k, word);
    }
    __syncthreads();
    for (long long start = 0; start + n < stop; start += width) {
        const unsigned k = (unsigned)start + t;
        const unsigned y = (x[k & mask] & 0x80000000u) | (x[(k + 1) & mask] & 0x7fffffffu);
        const unsigned word = x[(k + m) & mask] ^ (y >> 1) ^ ((y & 1u) * 0x9908b0dfu);
        x[(k + n) & mask] = word;
        give(start + t + n, word);
        __syncthreads();
    }
}
