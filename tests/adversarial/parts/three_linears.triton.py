class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3)).bfloat16()

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            out = torch.empty_like(x)
            (m, k), n = x.shape, layer.out_features
            linear[(m // 64, n // 64)](
                x, layer.weight, layer.bias, out, n, K=k, BM=64, BN=64, ACT=index < 2
            )
            x = out
        return x
