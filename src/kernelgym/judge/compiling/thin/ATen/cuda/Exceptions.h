// Stands in for the real one, which brings the headers of cuBLAS, cuSPARSE and cuSOLVER.
#pragma once

#ifdef KERNELGYM_CUDA_LIBRARIES
#include_next <ATen/cuda/Exceptions.h>
#else
#include <c10/cuda/CUDAException.h>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#endif
