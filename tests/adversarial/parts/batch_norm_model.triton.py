class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.norm.eval()

    def forward(self, x):
        x, norm = x.contiguous(), self.norm
        out = torch.empty_like(x)
        state = norm.running_mean, norm.running_var, norm.weight, norm.bias
        grid = (triton.cdiv(x.numel(), 8192),)
        norm_kernel[grid](
            x, *state, out, x.numel(), x.shape[1], x.shape[2] * x.shape[3], BLOCK=8192
        )
        return out
