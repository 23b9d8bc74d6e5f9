# /// redteam
# problem = "fp16_attention"
# devices = ["cpu", "cuda"]
# what = "Attention block by block; the weights are rounded to fp16 for the second product."
# style = "fp16_flash"
# ///
import torch
import torch.nn as nn
import triton
import triton.language as tl


# /// part scores_of_halves.triton.py


# /// part attention_rows.triton.py
