# /// redteam
# problem = "fp16_sdpa"
# devices = ["cpu", "cuda"]
# what = "Attention block by block; the weights are rounded to fp16, which torch may not do."
# style = "fp16_flash"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


# /// part scores_of_halves.triton.py


# /// part attention_rows.triton.py
