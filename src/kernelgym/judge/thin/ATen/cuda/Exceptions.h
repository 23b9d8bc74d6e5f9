// Stands in for the real one, which brings the headers of cuBLAS, cuSPARSE and cuSOLVER.
#pragma once

#include <c10/cuda/CUDAException.h>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
