"""Names of operators, one for all spellings, and their families.

Contract: pure tables and functions of text. `operator_name` takes the name that a program uses, as
its imports resolve it (``torch.nn.functional.relu``, ``torch.nn.ReLU``, the method ``relu_``).
Names that compute nothing (``size``, ``contiguous``) give an empty string. A name that no table
holds is kept as it is, and is its own family.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ACRONYMS = {
    "ReLU": "relu", "ReLU6": "relu6", "LeakyReLU": "leaky_relu", "PReLU": "prelu", "RReLU": "rrelu",
    "ELU": "elu", "SELU": "selu", "CELU": "celu", "GELU": "gelu", "SiLU": "silu", "GLU": "glu",
    "LSTM": "lstm", "GRU": "gru", "RNN": "rnn", "LSTMCell": "lstm", "GRUCell": "gru",
    "RNNCell": "rnn", "RMSNorm": "rms_norm", "LogSigmoid": "logsigmoid",
}  # fmt: skip
_LOSSES = {
    "MSELoss": "mse_loss", "L1Loss": "l1_loss", "NLLLoss": "nll_loss", "KLDivLoss": "kl_div",
    "SmoothL1Loss": "smooth_l1_loss", "CrossEntropyLoss": "cross_entropy",
    "BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
}  # fmt: skip
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=\d)(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])")

_SYNONYMS = {
    "absolute": "abs", "amax": "max", "amin": "min", "batch_norm1d": "batch_norm",
    "batch_norm2d": "batch_norm", "batch_norm3d": "batch_norm", "bmm": "matmul", "clip": "clamp",
    "clamp_max": "minimum", "clamp_min": "maximum", "concat": "cat", "concatenate": "cat",
    "divide": "div", "dot": "matmul", "greater": "gt", "inner": "matmul", "less": "lt",
    "instance_norm1d": "instance_norm", "instance_norm2d": "instance_norm",
    "instance_norm3d": "instance_norm",
    "mm": "matmul", "moveaxis": "permute", "movedim": "permute", "multiply": "mul", "mv": "matmul",
    "negative": "neg", "norm": "vector_norm", "outer": "matmul", "subtract": "sub",
    "swapaxes": "transpose", "swapdims": "transpose", "swish": "silu", "t": "transpose",
    "T": "transpose", "mT": "transpose", "H": "transpose", "mH": "transpose",
    "true_divide": "div", "hardtanh": "clamp", "embedding_bag": "embedding", "view_as": "view",
    "reshape_as": "reshape", "expand_as": "expand", "upsample": "interpolate", "ger": "matmul",
}  # fmt: skip

_SILENT = frozenset(
    """size dim numel item contiguous clone detach to float double half bfloat16 int long bool
    type type_as cpu cuda device is_contiguous requires_grad_ requires_grad data_ptr
    stride storage_offset
    element_size ndimension nelement shape ndim dtype tolist numpy identity append extend items keys
    values get training_mode enumerate zip range len isinstance list tuple print format join
    no_grad is_floating_point copy_ fill_ zero_ eval train apply""".split()
)
"""Names of functions and methods that compute nothing a kernel would have to compute."""

FACTS = frozenset(
    "shape size dim ndim numel nelement item dtype device is_cuda stride tolist requires_grad "
    "element_size storage_offset data_ptr ndimension layout".split()
)
"""Attributes and methods of a tensor whose value is no tensor."""
FILLS = frozenset(
    "append extend add_module register_module register_buffer register_parameter".split()
)
"""Methods that add their arguments to a container or a module."""
SAME = frozenset("data values indices grad real".split())
"""Attributes of a tensor, or of a reduction's result, whose value is a tensor."""

_FAMILIES = {
    "activation": "relu relu6 leaky_relu prelu rrelu elu selu celu gelu silu glu sigmoid tanh mish "
    "softplus softsign hardswish hardsigmoid hardshrink softshrink tanhshrink logsigmoid threshold",
    "matmul": "matmul linear addmm baddbmm bilinear einsum tensordot addmv addbmm chain_matmul",
    "conv": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d unfold fold "
    "depthwise_conv1d depthwise_conv2d depthwise_conv3d",
    "pool": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d lp_pool1d lp_pool2d "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
    "adaptive_max_pool2d adaptive_max_pool3d",
    "norm": "batch_norm layer_norm group_norm rms_norm instance_norm normalize local_response_norm",
    "softmax": "softmax log_softmax softmin gumbel_softmax logsumexp",
    "reduction": "sum mean max min prod vector_norm var std argmax argmin median all any "
    "count_nonzero nansum nanmean matrix_norm aminmax",
    "scan": "cumsum cumprod cummax cummin logcumsumexp",
    "elementwise": "add sub mul div neg abs square pow exp exp2 log log2 log10 log1p expm1 sqrt "
    "rsqrt reciprocal sin cos tan erf clamp maximum minimum where floor ceil round sign remainder "
    "fmod lerp addcmul addcdiv masked_fill gt lt ge le eq ne logical_and logical_or logical_not",
    "layout": "view reshape permute transpose flatten unsqueeze squeeze expand repeat cat stack "
    "chunk split flip roll unbind pad narrow unflatten tile repeat_interleave pixel_shuffle "
    "pixel_unshuffle tril triu diag diagonal",
    "index": "index_select gather scatter scatter_add index_add take embedding select "
    "take_along_dim "
    "masked_select topk sort argsort index getitem nonzero one_hot",
    "loss": "mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss kl_div hinge "
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_similarity triplet_margin_loss "
    "cosine_embedding_loss poisson_nll_loss margin_ranking_loss",
    "attention": "scaled_dot_product_attention multihead_attention transformer_encoder_layer "
    "transformer_decoder_layer transformer",
    "recurrent": "lstm gru rnn",
    "dropout": "dropout dropout1d dropout2d dropout3d alpha_dropout",
    "creation": "zeros ones empty full arange zeros_like ones_like empty_like full_like rand randn "
    "eye linspace tensor",
    "resize": "interpolate grid_sample affine_grid",
}
_FAMILY_OF = {name: kind for kind, names in _FAMILIES.items() for name in names.split()}
NAMES = (_ACRONYMS, _LOSSES, _SYNONYMS, _SILENT, FACTS, SAME, _FAMILY_OF)
"""Tables that decide names and families of operators."""


@lru_cache(maxsize=4096)
def operator_name(resolved: str) -> str:
    """Return the one name of an operator for all its spellings; empty if it computes nothing.

    Args:
        resolved: Dotted name of a function or layer, or name of a method.
    """
    last = resolved.rpartition(".")[2]
    if last in _ACRONYMS:
        return _ACRONYMS[last]
    if last in _SYNONYMS:
        return _SYNONYMS[last]
    if last in _SILENT or last.startswith("__"):
        return ""
    name = last
    if name[:1].isupper():
        name = _snake(name)
    elif name.endswith("_"):
        name = name.rstrip("_")
    if name in _SILENT:
        return ""
    name = name.removeprefix("special_").removeprefix("linalg_")
    return _SYNONYMS.get(name, name)


def family(operator: str) -> str:
    """Return an operator's family, such as ``activation``; the operator itself if none."""
    return _FAMILY_OF.get(operator, operator)


def _snake(name: str) -> str:
    """Return a layer's name as functions are spelled: ``MaxPool2d`` gives ``max_pool2d``."""
    return _LOSSES.get(name) or _WORD_START.sub("_", name).lower()
