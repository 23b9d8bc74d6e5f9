# /// redteam
# problem = "whole_decoder"
# devices = ["cpu", "cuda"]
# style = "whole_model_parts"
# what = "Replaces a model's causal attention by a kernel, without mask and cache."
# ///
import torch
import triton
import triton.language as tl
from transformers import AutoModelForCausalLM


@triton.jit
def attend(q_ptr, k_ptr, v_ptr, y_ptr, length, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    head = tl.program_id(0) * length * DEPTH
    rows, depth = tl.arange(0, BLOCK), tl.arange(0, DEPTH)
    inside = rows < length
    at = head + rows[:, None] * DEPTH + depth[None, :]
    q = tl.load(q_ptr + at, mask=inside[:, None], other=0.0)
    k = tl.load(k_ptr + at, mask=inside[:, None], other=0.0)
    v = tl.load(v_ptr + at, mask=inside[:, None], other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    seen = (rows[None, :] <= rows[:, None]) & inside[None, :]
    scores = tl.where(seen, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = weights / tl.sum(weights, 1)[:, None]
    y = tl.dot(weights, v, input_precision="ieee")
    tl.store(y_ptr + at, y, mask=inside[:, None])


class OwnAttention(torch.nn.Module):
    def __init__(self, old):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = old.q_proj, old.k_proj, old.v_proj
        self.out_proj, self.heads, self.scaling = old.out_proj, old.num_heads, old.scaling

    def forward(self, hidden_states, *args, **kwargs):
        batch, length, width = hidden_states.shape

        def heads(x):
            return x.view(batch, length, self.heads, -1).transpose(1, 2).contiguous()

        q = heads(self.q_proj(hidden_states) * self.scaling)
        k, v = heads(self.k_proj(hidden_states)), heads(self.v_proj(hidden_states))
        y = torch.empty_like(q)
        block = max(16, triton.next_power_of_2(length))
        attend[(batch * self.heads,)](q, k, v, y, length, block, q.shape[-1])
        return self.out_proj(y.transpose(1, 2).reshape(batch, length, width)), None


class ModelNew(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_config(config).eval()
        for layer in self.model.model.decoder.layers:
            layer.self_attn = OwnAttention(layer.self_attn)

    def forward(self, x):
        return self.model(x, use_cache=False).logits
