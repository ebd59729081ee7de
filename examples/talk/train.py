"""Train the language model on text that comes with Python, and pack it: ``python -m examples.talk.train``.

The text is the language reference that ``help()`` shows and the docstrings of the standard library. About 12 minutes of
one core; other versions of Python and torch give other weights than the committed ``talk.oinf``.
"""

import ast
import math
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from examples.talk.tokenizer import END, Tokenizer, learned, plain
from torch import Tensor, nn
from torch.nn import functional

from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file

HERE = Path(__file__).parent
V, D, L, N, G, DH, F = 1024, 128, 4, 4, 2, 32, 352
"""Pieces, width, layers, heads, heads of keys and values, width of a head, width of the hidden layer."""
CONTEXT, BATCH, STEPS, WARMUP, RATE = 256, 8, 2600, 100, 4e-3
LEFT_OUT = {"site-packages", "test", "tests", "lib2to3", "idlelib", "pydoc_data", "ensurepip"}


def docstrings() -> Iterator[str]:
    """Every docstring of the standard library, in the order of its files."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        if LEFT_OUT & set(path.relative_to(library).parts):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def corpus() -> list[str]:
    """The texts: the topics of ``help()``, then docstrings of some length, each once."""
    found = [plain(topics[name]) for name in sorted(topics)]
    found += [text for text in dict.fromkeys(map(plain, docstrings())) if len(text) >= 100]
    return found


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding: pairs are elements i and i + Dh/2, as ``rope`` has them."""
    one, other = x.chunk(2, dim=-1)
    return torch.cat([one * cos - other * sin, one * sin + other * cos], dim=-1)


class Layer(nn.Module):
    """Attention with shared keys and values, then a gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(D, eps=1e-5), nn.RMSNorm(D, eps=1e-5)
        self.qkv, self.out = nn.Linear(D, (N + 2 * G) * DH, bias=False), nn.Linear(N * DH, D, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*size, bias=False) for size in ((D, F), (D, F), (F, D)))

    def forward(self, h: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = h.shape
        q, k, v = self.qkv(self.norm1(h)).split([N * DH, G * DH, G * DH], dim=-1)
        q, k, v = (x.view(batch, length, -1, DH).transpose(1, 2) for x in (q, k, v))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        h = h + self.out(mixed.transpose(1, 2).reshape(batch, length, N * DH))
        x = self.norm2(h)
        return h + self.down(functional.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """The language model; what the last layer gives is compared with the embedding of every piece."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, D)
        self.layers = nn.ModuleList(Layer() for _ in range(L))
        self.norm = nn.RMSNorm(D, eps=1e-5)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                ending = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(
                    weight, std=0.02 if "embedding" in name else D**-0.5 / (math.sqrt(2 * L) if ending else 1)
                )

    def forward(self, tokens: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(tokens.shape[1]), 10000.0 ** (-torch.arange(0, DH, 2) / DH))
        h = self.embedding(tokens)
        for layer in self.layers:
            h = layer(h, angles.cos(), angles.sin())
        return functional.linear(self.norm(h), self.embedding.weight)


def rate_at(step: int) -> float:
    """A short rise, then half a cosine down to a twentieth."""
    done = (step - WARMUP) / (STEPS - WARMUP)
    return RATE * (step + 1) / WARMUP if step < WARMUP else RATE * (0.05 + 0.475 * (1 + math.cos(math.pi * done)))


def trained(tokens: Tensor) -> Decoder:
    """A decoder that continues the text."""
    torch.manual_seed(1)
    model = Decoder()
    matrices = [weight for weight in model.parameters() if weight.ndim == 2]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": 0.05},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98))
    began, seen = perf_counter(), []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        starts = torch.randint(len(tokens) - CONTEXT - 1, (BATCH,))
        batch = torch.stack([tokens[start : start + CONTEXT + 1] for start in starts])
        loss = functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen.append(loss.item())
        if (step + 1) % 100 == 0:
            print(f"step {step + 1:5}: loss {sum(seen[-100:]) / 100:.3f}, {perf_counter() - began:4.0f} s", flush=True)
    return model


def in_eight_bits(matrix: npt.NDArray[np.float32]) -> TensorSpec:
    """A matrix as integers, with a scale for each row."""
    scale = (np.abs(matrix).max(axis=1) / 127).astype(np.float32)
    stored = np.rint(matrix / scale[:, None])
    return TensorSpec(stored, "i8", quant=QuantParams("symmetric", QuantScale.per_channel(0, scale)))


def packed(model: Decoder, tokenizer: Tokenizer, path: Path) -> None:
    """Write the model file: matrices in eight bits with a scale for each row, vectors as they are, and the pieces."""
    tensors: dict[str, Any] = {}
    for name, weight in model.state_dict().items():
        tensors[name.removesuffix(".weight")] = weight.numpy() if weight.ndim == 1 else in_eight_bits(weight.numpy())
    text = "".join(tokenizer.pieces).encode("ascii")
    tensors["pieces.text"] = np.frombuffer(text, np.uint8)
    tensors["pieces.ends"] = np.cumsum([len(piece) for piece in tokenizer.pieces]).astype(np.int32)
    save_file(path, tensors, {"V": V, "D": D, "L": L, "N": N, "G": G, "Dh": DH, "F": F})


def main(path: Path) -> None:
    torch.set_num_threads(1)
    texts = corpus()
    tokenizer = Tokenizer(learned(texts, V))
    tokens = torch.tensor([token for text in texts for token in tokenizer.encode(END + text)])
    print(f"{len(texts)} texts, {sum(map(len, texts)):,} characters, {len(tokens):,} tokens")
    model = trained(tokens)
    packed(model, tokenizer, path)
    print(
        f"{sum(weight.numel() for weight in model.parameters()):,} parameters in {path}: {path.stat().st_size:,} bytes"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "talk.oinf")
