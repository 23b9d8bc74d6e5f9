import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm(x_ptr, y_ptr, plane, eps, FEATURES: tl.constexpr, BLOCK: tl.constexpr):
    image = tl.program_id(1).to(tl.int64) * FEATURES * plane
    pixels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    features = tl.arange(0, FEATURES)
    offsets = image + features[:, None].to(tl.int64) * plane + pixels[None, :]
    mask = pixels[None, :] < plane
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / FEATURES + eps)
    tl.store(y_ptr + offsets, x * scale[None, :], mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.num_features, self.eps = num_features, eps

    def forward(self, x):
        y = torch.empty_like(x)
        plane = x.shape[2] * x.shape[3]
        grid = (triton.cdiv(plane, 128), x.shape[0])
        rms_norm[grid](x, y, plane, self.eps, FEATURES=self.num_features, BLOCK=128)
        return y
