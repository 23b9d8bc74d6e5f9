import torch
from transformers import AutoModelForCausalLM, OPTConfig


class Model(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = AutoModelForCausalLM.from_config(config).eval()

    def forward(self, x):
        return self.model(x).logits


config = OPTConfig(
    vocab_size=131,
    hidden_size=64,
    num_hidden_layers=3,
    ffn_dim=256,
    num_attention_heads=4,
    max_position_embeddings=64,
    word_embed_proj_dim=64,
    dropout=0.0,
)


def get_inputs():
    return [torch.randint(3, 131, (2, 32))]


def get_init_inputs():
    return [config]
