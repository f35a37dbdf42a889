"""A Qwen2 of some ten thousand random parameters: real attention, real caches, and no time."""

from __future__ import annotations

from typing import Any


def tiny_qwen(vocab_size: int, *, positions: int = 512, spread: float = 0.2, **config: Any) -> Any:
    """The same model each time; a larger ``spread`` makes its forecasts less even."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    shape = Qwen2Config(
        vocab_size=vocab_size, max_position_embeddings=positions, initializer_range=spread, **sizes, **config
    )
    return Qwen2ForCausalLM(shape).eval()
