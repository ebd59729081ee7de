"""What PyTorch does with the models: as it is, as a CUDA graph, and compiled."""

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from bench.cpu.torch_models import Decoder, Feeds, Lstm, Minilm, Module, Resnet
from bench.gpu.cases import Case
from torch import Tensor
from torch.nn import functional as F  # noqa: N812, the name everyone knows it by

ON = "cuda" if torch.cuda.is_available() else "cpu"


class Gemm(Module):
    """A product."""

    def forward(self, x: Tensor) -> Tensor:
        """All rows with all rows."""
        return F.linear(x, self.of("w"))


class Prompt(Decoder):
    """All tokens at once, each with those before it; the logits of the last."""

    def prepared(self, feeds: Feeds) -> list[Tensor]:
        """The tokens."""
        return [feeds["tokens"][0]]

    head_width = 64

    def forward(self, tokens: Tensor) -> Tensor:  # type: ignore[override]
        """The logits of the last token."""
        h = F.embedding(tokens, self.of("embed"))
        head, kind = self.head_width, h.dtype
        rates = 10000.0 ** (-torch.arange(0, head, 2, device=h.device).double() / head)
        angles = torch.outer(torch.arange(len(tokens), device=h.device).double(), rates)
        both = torch.cat([angles, angles], 1)
        cos, sin = both.cos().to(kind), both.sin().to(kind)
        layer = 0
        while hasattr(self, f"layers_{layer}_q"):
            own = f"layers.{layer}."
            n = self.norm(h, f"{own}norm1")
            q, k, v = (
                F.linear(n, self.of(f"{own}{name}")).view(len(tokens), -1, head).transpose(0, 1) for name in "qkv"
            )
            q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
            mixed = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
            h = h + F.linear(mixed.transpose(0, 1).reshape(len(tokens), -1), self.of(f"{own}o"))
            n = self.norm(h, f"{own}norm2")
            up = F.silu(F.linear(n, self.of(f"{own}gate"))) * F.linear(n, self.of(f"{own}up"))
            h = h + F.linear(up, self.of(f"{own}down"))
            layer += 1
        return F.linear(self.norm(h[-1:], "last"), self.of("head"))


class Llama(Decoder):
    """A token in bf16, whose keys and values lie in memory that has room for all."""

    head_width = 64

    def forward(self, token: Tensor, keys: Tensor, values: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The logits."""
        last = keys.shape[1] - 1
        h = F.embedding(token, self.of("head"))
        for layer in range(len(keys)):
            own = f"layers.{layer}."
            n = self.norm(h, f"{own}norm1")
            q, k, v = (F.linear(n, self.of(f"{own}{name}")).view(-1, 1, self.head_width) for name in "qkv")
            keys[layer, last:] = self.rotated(k, cos, sin).transpose(0, 1)
            values[layer, last:] = v.transpose(0, 1)
            own_keys, own_values = (one[layer].transpose(0, 1)[None] for one in (keys, values))
            q = self.rotated(q, cos, sin)[None]
            mixed = F.scaled_dot_product_attention(q, own_keys, own_values, enable_gqa=True)
            h = h + F.linear(mixed.reshape(1, -1), self.of(f"{own}o"))
            n = self.norm(h, f"{own}norm2")
            up = F.silu(F.linear(n, self.of(f"{own}gate"))) * F.linear(n, self.of(f"{own}up"))
            h = h + F.linear(up, self.of(f"{own}down"))
        return F.linear(self.norm(h, "last"), self.of("head"))


MODULES: dict[str, type[Module]] = {one.__name__: one for one in (Decoder, Gemm, Llama, Lstm, Minilm, Prompt, Resnet)}


def tensor(value: Any) -> Tensor:
    """An array as a tensor on the device."""
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(ON)
    return torch.from_numpy(np.ascontiguousarray(array)).to(ON)


def made(case: Case) -> tuple[Module, list[Tensor]]:
    """The module, and what its step is given."""
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    module = MODULES[case.module]({name: tensor(value) for name, value in case.model.tensors.items()}).eval()
    if isinstance(module, Llama):
        return module, _token(case, module)
    if isinstance(module, Prompt):
        module.head_width = case.model.sizes["Dh"]
    given = {name: tensor(value) for name, value in case.model.given.items()}
    return module, [one.to(ON) for one in module.prepared(given)]


def _token(case: Case, module: Llama) -> list[Tensor]:
    module.head_width = head = case.model.sizes["Dh"]
    past = [tensor(case.model.tables[name]) for name in ("K", "V")]
    tables = [torch.cat([one, torch.zeros_like(one[:, :1])], dim=1) for one in past]
    rates = 10000.0 ** (-torch.arange(0, head, 2, device=ON).double() / head)
    angles = (float(case.model.plain["step"]) * rates)[None]
    both = torch.cat([angles, angles], 1)
    return [tensor(case.model.inputs["token"]), *tables, both.cos().bfloat16(), both.sin().bfloat16()]


def result(case: Case) -> Any:
    """What a step gives, as an array of f32."""
    module, given = made(case)
    return module(*given).float().cpu().numpy()


def settle() -> None:
    """Wait for the device."""
    if ON == "cuda":
        torch.cuda.synchronize()


def prepared(case: Case, ways: list[str]) -> Iterator[tuple[str, dict[str, Any], Callable[[], Any] | None]]:
    """For each of some ways, how long it took until the first result was there, and a step; None if it failed."""
    module, given = made(case)
    for way in ways:
        start = perf_counter()
        try:
            whole = partial(_settled, _ways(module, given)[way]())
            whole()
            yield way, {"start_s": round(perf_counter() - start, 2)}, whole
        except Exception as error:  # noqa: BLE001  (the others are measured all the same)
            yield way, {"failed": f"{type(error).__name__}: {error}"[:600]}, None


def _settled(step: Callable[[], Any]) -> None:
    step()
    settle()


def _ways(module: Module, given: list[Tensor]) -> dict[str, Callable[[], Callable[[], Any]]]:
    def eager() -> Callable[[], Any]:
        return lambda: module(*given)

    def graph() -> Callable[[], Any]:
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                module(*given)
        torch.cuda.current_stream().wait_stream(side)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            module(*given)
        return recorded.replay

    def compiled(mode: str) -> Callable[[], Any]:
        torch._dynamo.reset()
        made_of = torch.compile(module, mode=mode)
        for _ in range(3):
            made_of(*given)
        return lambda: made_of(*given)

    return {
        "torch, eager": eager,
        "torch, CUDA graph": graph,
        "torch.compile, CUDA graph": lambda: compiled("reduce-overhead"),
        "torch.compile, max-autotune": lambda: compiled("max-autotune"),
    }


def ceilings() -> dict[str, float]:
    """Bytes and operations in a second: a large copy, and large products."""
    if ON == "cpu":
        return {"bytes": 1e10, "f32": 1e11, "bf16": 1e11}

    def seconds(step: Callable[[], Any]) -> float:
        times = []
        for _ in range(12):
            settle()
            start = perf_counter()
            step()
            settle()
            times.append(perf_counter() - start)
        return float(np.median(times[2:]))

    one = torch.empty(1 << 31, dtype=torch.uint8, device=ON)
    other = torch.empty_like(one)
    found = {"bytes": 2 * (1 << 31) / seconds(lambda: other.copy_(one))}
    for name, kind in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        x = torch.randn(8192, 8192, device=ON).to(kind)
        found[name] = 2 * 8192**3 / seconds(partial(torch.matmul, x, x))
    return found
