# /// redteam
# problem = "fp16_sdpa"
# devices = ["cuda"]
# what = "A warpgroup of 64 queries goes over 64 keys at a time, with running maxima and sums."
# ///
import os

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

declaration = "torch::Tensor attend(torch::Tensor q, torch::Tensor k, torch::Tensor v);"
source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

constexpr int SIZE = 64;  // queries of a block, keys of a step, numbers of a head
using shared_tile = st_hf<SIZE, SIZE>;
using heads_gl = gl<kittens::half, -1, -1, -1, SIZE>;
using tile = rt_fl<SIZE / 4, SIZE>;
struct globals { heads_gl q, k, v, out; };

__global__ void attend_kernel(const __grid_constant__ globals g) {
  extern __shared__ alignment_dummy memory[];
  shared_allocator allocator((int *)&memory[0]);
  shared_tile &queries = allocator.allocate<shared_tile>();
  shared_tile &keys = allocator.allocate<shared_tile>();
  shared_tile &values = allocator.allocate<shared_tile>();
  const int batch = blockIdx.z, head = blockIdx.y, block = blockIdx.x;
  tile scores, out;
  rt_hf<SIZE / 4, SIZE> shares;
  tile::col_vec highest, before, sum;
  warp::zero(out);
  warp::zero(sum);
  warp::neg_infty(highest);
  warpgroup::load(queries, g.q, {batch, head, block, 0});
  for (int step = 0; step < g.k.rows() / SIZE; step++) {
    warpgroup::load(keys, g.k, {batch, head, step, 0});
    warpgroup::load(values, g.v, {batch, head, step, 0});
    __syncthreads();
    warpgroup::mm_ABt(scores, queries, keys);
    warpgroup::mma_async_wait();
    warp::mul(scores, scores, 0.125f);  // 1 / sqrt(64)
    warp::copy(before, highest);
    warp::row_max(highest, scores, highest);
    warp::sub_row(scores, scores, highest);
    warp::exp(scores, scores);
    warp::sub(before, before, highest);
    warp::exp(before, before);
    warp::mul(sum, sum, before);
    warp::row_sum(sum, scores, sum);
    warp::mul_row(out, out, before);
    warp::copy(shares, scores);
    warpgroup::mma_AB(out, shares, values);
    warpgroup::mma_async_wait();
    __syncthreads();
  }
  warp::div_row(out, out, sum);
  warpgroup::store(g.out, out, {batch, head, block, 0});
}

torch::Tensor attend(torch::Tensor q_in, torch::Tensor k_in, torch::Tensor v_in) {
  auto q = q_in.contiguous();
  auto k = k_in.contiguous();
  auto v = v_in.contiguous();
  TORCH_CHECK(q.scalar_type() == torch::kHalf && q.size(3) == SIZE, "heads of 64 numbers in fp16");
  TORCH_CHECK(q.size(2) % SIZE == 0 && k.size(2) % SIZE == 0, "whole tiles");
  auto out = torch::empty_like(q);
  auto heads = [](torch::Tensor t) {
    return heads_gl{reinterpret_cast<kittens::half *>(t.data_ptr()), static_cast<size_t>(t.size(0)),
                    static_cast<size_t>(t.size(1)), static_cast<size_t>(t.size(2)), nullptr};
  };
  const int bytes = 3 * sizeof(shared_tile) + 1024;
  cudaFuncSetAttribute(attend_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  attend_kernel<<<dim3(q.size(2) / SIZE, q.size(1), q.size(0)), 4 * WARP_THREADS, bytes,
                  c10::cuda::getCurrentCUDAStream()>>>(
      globals{heads(q), heads(k), heads(v), heads(out)});
  return out;
}
"""

extension = load_inline(
    name="attend",
    cpp_sources=declaration,
    cuda_sources=source,
    functions=["attend"],
    extra_include_paths=[os.path.join(os.environ["THUNDERKITTENS_ROOT"], "include")],
    extra_cuda_cflags=[
        "-std=c++20",
        "-O3",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-DKITTENS_HOPPER",
    ],
    extra_ldflags=["-lcuda"],
)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return extension.attend(q, k, v)
