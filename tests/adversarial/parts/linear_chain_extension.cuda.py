extension = load_inline(
    name="chain_ext",
    cpp_sources=DECLARATION,
    cuda_sources=CHAIN + SOURCE,
    functions=["linear_chain"],
    extra_ldflags=["-lcublas"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return extension.linear_chain(x, self.linear.weight, self.linear.bias)
