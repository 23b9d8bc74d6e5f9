"""A model folder for sentence-transformers, made here: a tokenizer by words and a tiny BERT."""

from __future__ import annotations

from pathlib import Path


def make_text_model(folder: Path, seed: int = 0, dimension: int = 32, longest: int = 24) -> Path:
    """Write a model that embeds by mean of its last layer; returns the folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "relu", "gelu", "linear", "conv2d", "softmax"]
    words += ["add", "mul", "sum", "mean", "max", "scale", "shift", "sigmoid", "tanh", "exp", "abs"]
    words += ["layer_norm", "matmul", "div", "sub", "silu", "clamp", "negate", "square", "sqrt"]
    own = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=own,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=longest,
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=dimension,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * dimension,
        max_position_embeddings=longest,
    )
    inner = folder.with_name(f"{folder.name}-inner")
    BertModel(config).save_pretrained(inner)
    tokenizer.save_pretrained(inner)
    reads = Transformer(str(inner), max_seq_length=longest)
    SentenceTransformer(modules=[reads, Pooling(dimension)], device="cpu").save(str(folder))
    return folder
