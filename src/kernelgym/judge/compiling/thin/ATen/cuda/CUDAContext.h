// Stands in for the real one, which brings the headers of cuBLAS, cuSPARSE and cuSOLVER: streams and
// device properties only, unless a source names those.
#pragma once

#ifdef KERNELGYM_CUDA_LIBRARIES
#include_next <ATen/cuda/CUDAContext.h>
#else
#include <ATen/cuda/Exceptions.h>
#include <c10/core/Device.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

namespace at::cuda {
cudaDeviceProp* getCurrentDeviceProperties();
cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
int warp_size();
bool canDeviceAccessPeer(c10::DeviceIndex device, c10::DeviceIndex peer_device);
} // namespace at::cuda
#endif
