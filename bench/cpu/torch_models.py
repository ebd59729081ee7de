"""The models for PyTorch: small modules on the weights that the other engines have, by the same names."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812, the name everyone knows it by

Feeds = dict[str, Tensor]


class Module(nn.Module):
    """Weights by name. Their dots become underlines, since attributes have none."""

    def __init__(self, weights: Feeds) -> None:
        super().__init__()
        for name, value in weights.items():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(value, requires_grad=False))

    def of(self, name: str) -> Any:
        return getattr(self, name.replace(".", "_"))

    def dense(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.of(f"{name}.weight"), self.of(f"{name}.bias"))

    def prepared(self, feeds: Feeds) -> list[Tensor]:
        """The arguments of a step, made of the inputs of the ONNX model."""
        return list(feeds.values())


class Mlp(Module):
    def forward(self, x: Tensor) -> Tensor:
        for layer in range(3):
            x = F.linear(x, self.of(f"w{layer}"), self.of(f"b{layer}"))
            x = F.relu(x) if layer < 2 else x
        return x


class Resnet(Module):
    """Convolutions are numbered as the builder numbers them: with the values that they make."""

    def conv(self, x: Tensor, number: int, stride: int) -> Tensor:
        w = self.of(f"w{number}")
        return F.conv2d(x, w, self.of(f"b{number}"), stride=stride, padding=w.shape[-1] // 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv(x, 0, 2)), 3, 2, 1)
        number = 2  # the pooling has a number too
        for features in (64, 128, 256, 512):
            for stride in (1 if features == 64 else 2, 1):
                y = self.conv(F.relu(self.conv(x, number, stride)), number + 1, 1)
                number += 2
                if stride != 1:
                    x = self.conv(x, number, stride)
                    number += 1
                x = F.relu(y + x)
        return F.linear(x.mean((2, 3)), self.of("w"), self.of("b"))


class Digits(Module):
    def forward(self, image: Tensor) -> Tensor:
        x = image.to(torch.float32) * 0.0625
        for layer in ("conv1", "conv2", "conv3"):
            x = F.relu(F.conv2d(x, self.of(f"{layer}.weight"), self.of(f"{layer}.bias"), padding=1))
            x = F.max_pool2d(x, 2) if layer != "conv1" else x
        return self.dense(x.flatten(1), "out")


class Lstm(Module):
    def prepared(self, feeds: Feeds) -> list[Tensor]:
        return [feeds[name][0] for name in ("x", "h", "c")]

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
        gates = F.linear(x, self.of("w_ih"), self.of("b_ih")) + F.linear(h, self.of("w_hh"), self.of("b_hh"))
        i, f, g, o = gates.chunk(4, 1)
        after = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(after)


class Minilm(Module):
    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (384,), self.of(f"{name}.weight"), self.of(f"{name}.bias"), 1e-12)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        batch, tokens = ids.shape
        h = F.embedding(ids, self.of("embeddings.word_embeddings.weight"))
        h = h + self.of("embeddings.position_embeddings.weight")[:tokens]
        h = self.norm(h + self.of("embeddings.token_type_embeddings.weight")[0], "embeddings.LayerNorm")
        attend = mask.bool()[:, None, None, :]
        for layer in (f"encoder.layer.{number}" for number in range(6)):
            q, k, v = (
                self.dense(h, f"{layer}.attention.self.{name}").view(batch, tokens, 12, 32).transpose(1, 2)
                for name in ("query", "key", "value")
            )
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=attend).transpose(1, 2)
            out = self.dense(mixed.reshape(batch, tokens, 384), f"{layer}.attention.output.dense")
            h = self.norm(h + out, f"{layer}.attention.output.LayerNorm")
            wide = F.gelu(self.dense(h, f"{layer}.intermediate.dense"))
            h = self.norm(h + self.dense(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        kept = mask[:, :, None].to(h.dtype)
        return F.normalize((h * kept).sum(1) / kept.sum(1), dim=1)


class Decoder(Module):
    """Keys and values lie in memory that has room for all tokens, and a step writes those of its own there."""

    def prepared(self, feeds: Feeds) -> list[Tensor]:
        keys, values = (
            torch.stack([value for name, value in feeds.items() if name.startswith(f"past_{what}")]) for what in "kv"
        )
        tables = [torch.cat([past, torch.zeros_like(past[..., :1, :])], dim=-2) for past in (keys, values)]
        width = keys.shape[-1]
        position = feeds["position"].double()
        rates = 10000.0 ** (-torch.arange(0, width, 2, device=position.device).double() / width)
        angles = torch.outer(position, rates)
        both = torch.cat([angles, angles], 1)
        return [feeds["token"][0], *tables, both.cos().float(), both.sin().float()]

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.of(name), 1e-5)

    def rotated(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        one, other = x.chunk(2, -1)
        return x * cos + torch.cat([-other, one], -1) * sin

    def forward(self, token: Tensor, keys: Tensor, values: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        layers, last, head = len(keys), keys.shape[-2] - 1, keys.shape[-1]
        h = F.embedding(token, self.of("embed"))
        for layer in range(layers):
            own = f"layers.{layer}."
            n = self.norm(h, f"{own}norm1")
            q, k, v = (F.linear(n, self.of(f"{own}{name}")).view(1, -1, 1, head) for name in "qkv")
            keys[layer, :, :, last:] = self.rotated(k, cos, sin)
            values[layer, :, :, last:] = v
            q = self.rotated(q, cos, sin)
            mixed = F.scaled_dot_product_attention(q, keys[layer], values[layer], enable_gqa=True)
            h = h + F.linear(mixed.reshape(1, -1), self.of(f"{own}o"))
            n = self.norm(h, f"{own}norm2")
            up = F.silu(F.linear(n, self.of(f"{own}gate"))) * F.linear(n, self.of(f"{own}up"))
            h = h + F.linear(up, self.of(f"{own}down"))
        return F.linear(self.norm(h, "last"), self.of("head"))


MODULES: dict[str, Callable[[Feeds], Module]] = {
    "mlp": Mlp,
    "minilm-1x16": Minilm,
    "minilm-1x128": Minilm,
    "minilm-8x128": Minilm,
    "resnet18": Resnet,
    "decoder": Decoder,
    "digits": Digits,
    "lstm": Lstm,
}
