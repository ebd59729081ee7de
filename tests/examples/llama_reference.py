"""A llama in NumPy, from a GGUF file that its own library reads: what generated programs are held to."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray[Any, np.dtype[np.float32]]


class LlamaReference:
    """Weights as 32-bit floats, a cache of lists, and one token at a time. It shares nothing with OpenInfer."""

    def __init__(self, file: Path) -> None:
        reader = gguf.GGUFReader(file)
        facts = {name.removeprefix("llama."): field.contents() for name, field in reader.fields.items()}
        self.layers, self.heads = facts["block_count"], facts["attention.head_count"]
        self.groups, self.epsilon = facts["attention.head_count_kv"], facts["attention.layer_norm_rms_epsilon"]
        self.size = facts["embedding_length"] // self.heads
        self.frequencies = facts["rope.freq_base"] ** (-2.0 * np.arange(self.size // 2) / self.size)
        self.weights: dict[str, Array] = {
            tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            for tensor in reader.tensors
        }
        self.keys: list[list[Array]] = [[] for _ in range(self.layers)]
        self.values: list[list[Array]] = [[] for _ in range(self.layers)]

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """The likeliest tokens after those of a prompt."""
        for token in prompt:
            logits = self.step(token)
        found: list[int] = []
        while len(found) < count:
            found.append(int(logits.argmax()))
            logits = self.step(found[-1])
        return found

    def step(self, token: int) -> Array:
        """What follows a token."""
        hidden = self.weights["token_embd.weight"][token]
        for layer in range(self.layers):
            hidden = hidden + self.attention(layer, self.norm(hidden, f"blk.{layer}.attn_norm"))
            hidden = hidden + self.feed_forward(layer, self.norm(hidden, f"blk.{layer}.ffn_norm"))
        table = self.weights.get("output.weight", self.weights["token_embd.weight"])
        return table @ self.norm(hidden, "output_norm")

    def attention(self, layer: int, x: Array) -> Array:
        query, key, value = (self.product(f"blk.{layer}.attn_{name}", x).reshape(-1, self.size) for name in "qkv")
        position = len(self.keys[layer])
        self.keys[layer].append(self.rotated(key, position))
        self.values[layer].append(value)
        keys, values = (
            np.stack(cache[layer]).repeat(self.heads // self.groups, axis=1) for cache in (self.keys, self.values)
        )
        scores = np.einsum("tnd,nd->nt", keys, self.rotated(query, position)) / np.sqrt(self.size)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        joined = np.einsum("nt,tnd->nd", weights / weights.sum(axis=1, keepdims=True), values)
        return self.product(f"blk.{layer}.attn_output", joined.reshape(-1).astype(np.float32))

    def feed_forward(self, layer: int, x: Array) -> Array:
        gate, up = (self.product(f"blk.{layer}.ffn_{name}", x) for name in ("gate", "up"))
        return self.product(f"blk.{layer}.ffn_down", gate / (1 + np.exp(-gate)) * up)

    def product(self, name: str, x: Array) -> Array:
        made: Array = self.weights[f"{name}.weight"] @ x
        return made

    def norm(self, x: Array, name: str) -> Array:
        normed: Array = x / np.sqrt(np.mean(x * x) + self.epsilon) * self.weights[f"{name}.weight"]
        return normed

    def rotated(self, x: Array, position: int) -> Array:
        """Pairs of neighbours, each turned by an angle of its own: the order in which the file has them."""
        pairs = x.reshape(len(x), -1, 2).astype(np.float64)
        waves = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * position * self.frequencies)
        return np.stack([waves.real, waves.imag], axis=-1).reshape(x.shape).astype(np.float32)
