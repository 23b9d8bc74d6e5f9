#pragma once

#ifdef KERNELGYM_CUDA_LIBRARIES
#include_next <ATen/cuda/CUDAContextLight.h>
#else
#include <ATen/cuda/CUDAContext.h>
#endif
