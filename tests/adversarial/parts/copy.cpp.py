SOURCE = """
torch::Tensor duplicate(torch::Tensor x) {
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = in[i];
  return out;
}
"""
extension = load_inline(
    name="copy_ext", cpp_sources=SOURCE, functions=["duplicate"], extra_cflags=["-O2"]
)


def copy(x):
    return extension.duplicate(x)
