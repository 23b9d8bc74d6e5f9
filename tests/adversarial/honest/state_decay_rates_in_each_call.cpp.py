# /// redteam
# problem = "state_decay"
# devices = ["cpu"]
# style = "folded_and_kept"
# what = "Makes a table of a parameter's exponentials in every call."
# ///
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
// /// part decay.cpp

torch::Tensor decayed(torch::Tensor x, torch::Tensor dt, torch::Tensor a_log) {
  make_rates(a_log);
  return decayed_by_rates(x, dt);
}
"""
extension = load_inline(name="decay_ext", cpp_sources=SOURCE, functions=["decayed"])


class ModelNew(nn.Module):
    def __init__(self, states):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1, states + 1, dtype=torch.float32)))

    def forward(self, x, dt):
        return extension.decayed(x, dt, self.A_log)
