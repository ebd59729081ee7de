"""PyTorch modules become graphs that compute what PyTorch computes; what cannot be is refused, node by node."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.in_process import openinfer
from tests.importing.torch_models import require_torch_agreement
from torch import nn
from torch.export import Dim
from torch.nn import functional as F  # noqa: N812  (as everybody calls it)

from openinfer import ImportingError
from openinfer.errors import Code
from openinfer.importing import import_torch
from openinfer.lang.format import format_source


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


# --- families ---------------------------------------------------------------------------------------------------------


def test_an_mlp_with_a_dynamic_batch(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 4), nn.Softmax(-1))
    steps = [(torch.randn(2, 8),), (torch.randn(5, 8),)]
    text, found = require_torch_agreement(net, tmp_path, steps, in_c=True, dynamic_shapes=({0: Dim("batch", max=32)},))
    assert "sizes {\n    batch <= 32;\n}" in text
    assert '@ref("3.weight")' in text
    assert found.outputs == {"output": "output"}
    assert text.count("op ") == 4


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        assert self.norm.running_mean is not None
        assert self.norm.running_var is not None
        self.norm.running_mean.uniform_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm(self.conv(x)), inplace=True)


def test_a_cnn_with_batch_norm_and_residuals_folds_the_norms(tmp_path: Path) -> None:
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU6(), Residual(8), Residual(8), Residual(8)),
        *(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
    )
    text, _ = require_torch_agreement(net, tmp_path, [(torch.randn(2, 3, 16, 16),)], in_c=True)
    assert "batch_norm" not in text
    assert "conv2d" in text


def test_an_encoder_of_pytorch_becomes_one_loop(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
    net = nn.TransformerEncoder(layer, 4, norm=nn.LayerNorm(16))
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)
    steps = [(torch.randn(2, 5, 16),), (torch.randn(1, 3, 16),)]
    shapes = ({0: Dim("batch", max=4), 1: Dim("time", max=8)},)
    text, _ = require_torch_agreement(net, tmp_path, steps, in_c=True, dynamic_shapes=shapes)
    assert "loop layers (l in 0..4) {" in text
    assert '@pattern("layers.{l}.linear1.weight")' in text
    assert text.count("op sdpa") == 1
    literal, _ = require_torch_agreement(net, tmp_path, steps, dynamic_shapes=shapes, loops=False, idioms=False)
    assert literal.count("op sdpa") == 4


class Attention(nn.Module):
    """With rotary positions, fewer heads for keys than for queries, and a cache in buffers."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, width: int, heads: int, shared: int, longest: int) -> None:
        super().__init__()
        self.heads, self.shared, self.depth = heads, shared, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * shared * self.depth, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, shared, longest, self.depth))
        self.register_buffer("values", torch.zeros(1, shared, longest, self.depth))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, at: torch.Tensor) -> Any:
        length = x.shape[1]
        q = self.q(x).view(1, length, self.heads, self.depth).transpose(1, 2)
        k, v = self.kv(x).view(1, length, 2, self.shared, self.depth).unbind(2)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        q, k = (one * cos + rotated(one) * sin for one in (q, k))
        self.keys[:, :, at] = k
        self.values[:, :, at] = v
        mask = torch.arange(self.keys.shape[2])[None, :] <= at[:, None]
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(1, length, -1))


def rotated(x: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat([-high, low], dim=-1)


class Layer(nn.Module):
    def __init__(self, width: int, longest: int) -> None:
        super().__init__()
        self.before, self.after = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, 4, 2, longest)
        self.gate, self.up, self.down = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, at: torch.Tensor) -> Any:
        x = x + self.attention(self.before(x), cos, sin, at)
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gpt(nn.Module):
    """A decoder with its cache and position in buffers, and tied embeddings."""

    cos: torch.Tensor
    sin: torch.Tensor
    position: torch.Tensor

    def __init__(self, layers: int = 3, width: int = 16, words: int = 11, longest: int = 12) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, longest) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight
        angles = torch.arange(longest)[:, None] / 100 ** (torch.arange(2) / 2)[None, :]
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def forward(self, ids: torch.Tensor) -> Any:
        at = self.position + torch.arange(ids.shape[1])
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos[at], self.sin[at], at)
        self.position += ids.shape[1]
        return self.head(self.norm(x))


def test_a_decoder_with_its_cache_in_buffers_runs_step_by_step(tmp_path: Path) -> None:
    steps = [(torch.tensor([one]),) for one in ([3, 1, 4], [1], [5, 9])]
    text, found = require_torch_agreement(Gpt(), tmp_path, steps, in_c=True, dynamic_shapes=({1: Dim("time", max=4)},))
    assert "op rope_cached" in text
    assert "op rms_norm" in text
    assert "op silu" in text
    assert found.states["position"] == "position"
    assert found.states["layers.1.attention.keys"] == "layers_attention_keys"
    assert "layers_attention_keys: f32[3, 1, 2, 12, 4];" in text
    assert text.count("cache.write") == 3
    assert format_source(text) == text
    assert text.count("f32[11, 16]") == 1  # tied


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.gru, self.rnn = nn.GRU(3, 4), nn.RNN(3, 4, nonlinearity="relu", bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.lstm(x), self.gru(x), self.rnn(x[:1])


def test_recurrent_modules_are_loops_over_time(tmp_path: Path) -> None:
    text, _ = require_torch_agreement(Recurrent(), tmp_path, [(torch.randn(2, 5, 3),)], in_c=True)
    assert text.count("op lstm_cell") == 4
    assert text.count("op gru_cell") == text.count("op rnn_cell") == 1
    assert text.count("loop time") == 5  # one step needs none


class Embedded(nn.Module):
    offsets: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(10, 6), nn.Embedding(8, 6)
        self.register_buffer("offsets", torch.tensor([0, 2, 4, 6]))

    def forward(self, ids: torch.Tensor) -> Any:
        x = self.words(ids) + self.places(self.offsets[: ids.shape[1]])
        return {"mean": x.mean(1), "rest": (x.argmax(-1), x.amax(1))}


def test_embeddings_and_outputs_in_dicts_and_tuples(tmp_path: Path) -> None:
    steps = [(torch.tensor([[1, 2, 9], [0, 0, 3]]),), (torch.tensor([[4, 0]]),)]
    shapes = {"ids": {0: Dim("batch", max=4), 1: Dim("time", max=4)}}
    _, found = require_torch_agreement(Embedded(), tmp_path, steps, dynamic_shapes=shapes)
    assert found.outputs == {"mean": "mean", "rest.0": "rest_0", "rest.1": "rest_1"}


# --- buffers ----------------------------------------------------------------------------------------------------------


class Counting(nn.Module):
    """A number that grows, a mean that moves, and what it was before."""

    count: torch.Tensor
    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(5))
        self.register_buffer("mean", torch.tensor([1.0, -2.0, 0.5]))
        self.register_buffer("scale", torch.tensor([2.0, 3.0, 4.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.mean.clone()
        self.count += 1
        self.mean.lerp_(x, 0.25)
        return before, self.mean * self.scale + self.count


def test_buffers_that_are_written_are_persistent_from_their_own_value_on(tmp_path: Path) -> None:
    text, found = require_torch_agreement(Counting(), tmp_path, [(torch.randn(3),) for _ in range(4)], in_c=True)
    assert found.states == {"count": "count", "mean": "mean"}
    assert "count: i64 @init(5);" in text
    assert "persistent {\n    count: i64 @init(5);\n    mean: f32[3];\n}" in text
    assert "scale: f32[3];" in text.split("constant {")[1].split("}")[0]


def test_outputs_can_be_tied_to_inputs(tmp_path: Path) -> None:
    class Cell(nn.Module):
        def forward(self, x: torch.Tensor, h: torch.Tensor) -> dict[str, torch.Tensor]:
            new = torch.tanh(x + h)
            return {"y": new * 2, "next": new}

    found = import_torch(Cell(), (torch.zeros(3), torch.zeros(3)), tmp_path, states=[("next", "h")])
    assert found.inputs == {"x": "x"}
    assert found.states == {"h": "h", "next": "h"}


# --- ops --------------------------------------------------------------------------------------------------------------


def cases() -> dict[str, Any]:
    """Functions of a [2, 3, 4] and a [2, 3, 4] of integers, each with some ops."""
    return {
        "views": lambda x, _i: (x.view(2, -1), x.permute(2, 0, 1), x.transpose(0, 2)[..., None].squeeze(-1), x.mT),
        "slices": lambda x, _i: (x[:, 1:], x[..., ::2], x[0, :, -1], x[:, -2:], x[:, None, 1]),
        "writes": lambda x, _i: _written(x),
        "indexing": lambda x, i: (
            *(x[i[0, 0] % 2], x[:, i[0, 0] % 3]),
            *(x[:, i[:, 0, :2] % 3, i[:, 0, 2:] % 4], x[i[0, :, 0] % 2, :, i[0, :, 1] % 4]),
        ),
        "gathers": lambda x, i: (
            *(x.gather(1, i % 3), x.index_select(2, torch.tensor([3, 0])), x.scatter(2, i % 4, 7.0)),
            *(x.scatter_add(1, i % 3, x), x.index_add(0, torch.tensor([1, 1]), x), torch.take(x, i)),
        ),
        "arithmetic": lambda x, i: (
            *(x + i, 2 - x, x / (i + 1), i // 2, i % 3, x.remainder(0.7), x**2, x.abs() ** 0.3, -x, x.clamp(-0.5, 1)),
            *(torch.rsub(x, 1, alpha=2), x.maximum(i), i.pow(2), torch.div(x, 0.3, rounding_mode="floor"), i / 2),
        ),
        "comparisons": lambda x, i: (
            *(x > 0.1, i >= 1, (x > 0) & (i > 0), (x > 0) == (i > 1), x.isnan(), ~(i > 1), i.bool() | (x < 0)),
            *(torch.where(x > 0, x, 0.5), x.masked_fill(i > 1, float("-inf")), (x > 0) < (i > 0), x.sign()),
        ),
        "functions": lambda x, i: (
            *(x.exp(), x.abs().log1p(), x.sigmoid(), x.tanh(), x.erf()),
            *(x.floor(), x.round(), i.sqrt(), x.abs().rsqrt()),
        ),
        "activations": lambda x, _i: (
            *(F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.elu(x), F.celu(x, 0.7), F.selu(x)),
            *(F.leaky_relu(x, 0.2), F.hardswish(x), F.hardsigmoid(x), F.hardtanh(x)),
            *(F.softplus(x), F.glu(x), F.relu6(x)),
            *(F.logsigmoid(x), F.softsign(x), F.softmax(x, 1)),
            *(F.log_softmax(x, -1), F.prelu(x, torch.tensor([0.1, 0.2, 0.3]))),
            *(F.threshold(x, 0.1, -2.0), F.tanhshrink(x), F.softshrink(x), F.hardshrink(x), F.softmin(x, -1)),
        ),
        "reductions": lambda x, i: (
            *(x.sum(), x.mean((0, 2)), i.sum(1), x.prod(2), x.amax(1), x.max(2), x.min(0).values, (x > 0).any(1)),
            *((x > 0).all(), x.std(1), x.var(-1, unbiased=False), x.norm(dim=1)),
            *(x.logsumexp(2), x.argmax(), x.argmin(1)),
            *(x.cumsum(1), i.cumsum(2), x.topk(2)),
            *(x.sort(descending=True), x.norm(p=1, dim=2), torch.aminmax(x, dim=1)),
        ),
        "joins": lambda x, i: (
            *(torch.cat([x, i], 1), torch.stack([x, x * 2], 1), x.chunk(2, 2), x.split([1, 2], 1), x.unbind(1)),
            *(x.repeat(1, 2, 1), x.repeat_interleave(2, 1), x.flip(0, 2)),
            *(x.roll(1, 2), x.expand(3, 2, 3, 4), x.tile(2)),
        ),
        "pads": lambda x, _i: (
            *(F.pad(x, (1, 2)), F.pad(x, (1, -1, 0, 1), value=2.0), F.pad(x, (2, 1), mode="reflect")),
            *(F.pad(x, (1, 1), mode="replicate"), F.pad(x, (1, 2), mode="circular")),
        ),
        "products": lambda x, i: (
            *(x @ x.mT, torch.einsum("bij,bkj->bik", x, x), torch.einsum("...ij,...ij->...i", x, x), x[0] @ x[0, 0]),
            *(torch.addmm(x[0, :, :3], x[0], x[1].T, alpha=2, beta=0.5), torch.baddbmm(x[..., :3], x, x.mT)),
            *(torch.outer(x[0, 0], x[0, 1]), i @ i.mT, x[0, 0] @ x[0, 1]),
        ),
        "made": lambda x, _i: (
            *(x + torch.arange(4), torch.ones_like(x) * 3, x.new_zeros(2), torch.eye(3) @ x, x.tril(), x.triu(1)),
            *(torch.full((2,), 7.0) + x[:, 0, 0], torch.linspace(0, 1, 4) * x, F.one_hot(torch.arange(3), 4) * x),
        ),
        "distances": lambda x, _i: (
            *(torch.cdist(x[0], x[1]), F.cosine_similarity(x[0], x[1])),
            F.grid_sample(x[None], x[:1, ..., :2, None].transpose(2, 3), align_corners=False),
        ),
        "norms": lambda x, _i: (
            *(F.layer_norm(x, (4,)), F.layer_norm(x, (3, 4)), F.rms_norm(x, (4,)), F.group_norm(x, 3), F.normalize(x)),
            *(F.instance_norm(x), F.layer_norm(x, (4,), torch.arange(4.0), torch.ones(4), 1e-3)),
        ),
        "types": lambda x, i: (
            *(x.half() * 2, x.double() + 1, x.int(), i.float(), x.bool(), i.to(torch.int32) + 1, x.type_as(i)),
        ),
        "ceilings": lambda x, _i: (
            *(F.max_pool1d(x, 3, 2, ceil_mode=True), F.max_pool1d(x, 2, 2, 1, ceil_mode=True)),
            *(F.avg_pool1d(x, 3, 2, 1, ceil_mode=True), F.avg_pool1d(x, 3, 2, 1, True, count_include_pad=False)),
            *(F.avg_pool2d(x, 2, 1, divisor_override=3), F.max_pool2d(x, 3, 2, 1, ceil_mode=True)),
        ),
        "windows": lambda x, _i: (
            *(F.max_pool1d(x, 2), F.avg_pool1d(x, 3, 1, 1), F.adaptive_avg_pool1d(x, 3), F.adaptive_max_pool1d(x, 2)),
            *(x.unfold(2, 2, 1), F.conv1d(x, torch.ones(2, 3, 2), padding="same")),
            *(F.conv_transpose1d(x, torch.ones(3, 2, 2), stride=2),),
            *(F.interpolate(x, scale_factor=2), F.interpolate(x, size=7, mode="linear")),
            *(F.avg_pool1d(x, 2, 1, 1, count_include_pad=False),),
            *(F.interpolate(x[None], size=(5, 6), mode="bilinear", align_corners=True),),
            *(F.interpolate(x[None], (6, 7), mode="bicubic"),),
            *(F.pixel_shuffle(x.reshape(1, 8, 3, 1), 2), F.interpolate(x, 6, mode="nearest-exact")),
            *(F.interpolate(x, scale_factor=1.6),),
        ),
    }  # fmt: skip


def _written(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y, z, w = x.clone(), x.clone(), x.clone()
    y[:, 1] = 3
    y[0, ..., 1:3] *= 2
    y += 1
    z[z > 0] = -1.0
    z[:, :, ::2] = 5
    w[:, [0, 2]] = x[:, :2] * 2
    w[torch.tensor([0, 1]), 1, torch.tensor([2, 3])] = 9
    return y, z, w, x.index_copy(1, torch.tensor([2, 0]), x[:, :2]), x.index_fill(1, torch.tensor([1]), 4.0)


class Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> Any:
        return self.function(x, i)


GROUPS = [list(cases())[start::4] for start in range(4)]


@pytest.mark.parametrize("names", GROUPS, ids="-".join)
def test_ops_agree(tmp_path: Path, names: list[str]) -> None:
    given = (torch.randn(2, 3, 4), torch.arange(24).reshape(2, 3, 4) % 5)
    functions = {name: cases()[name] for name in names}
    module = Function(lambda x, i: {name: function(x, i) for name, function in functions.items()})
    require_torch_agreement(module, tmp_path, [given], tolerance=2e-5)


DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def test_dtypes_are_kept(tmp_path: Path) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, dtype in DTYPES.items():
                self.add_module(name, nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)).to(dtype))

        def forward(self, x: torch.Tensor) -> Any:
            return {name: self.get_submodule(name)(x.to(dtype)) for name, dtype in DTYPES.items()}

    text, _ = require_torch_agreement(Mixed(), tmp_path, [(torch.randn(3, 8),)], tolerance=2e-2)
    for name in DTYPES:
        assert f'{name}_0_weight: {name}[8, 8] @ref("{name}.0.weight")' in text


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_sizes_without_a_bound_are_listed_together(tmp_path: Path) -> None:
    shapes = ({0: Dim("batch"), 1: Dim("time")},)
    with pytest.raises(ImportingError) as caught:
        import_torch(nn.ReLU().eval(), (torch.randn(2, 3),), tmp_path / "out", dynamic_shapes=shapes)
    assert caught.value.code is Code.OPEN_SIZE
    assert "'batch', 'time'" in caught.value.message
    assert not (tmp_path / "out").exists()


def test_sizes_are_called_by_their_input_where_they_have_no_name(tmp_path: Path) -> None:
    program = torch.export.export(nn.ReLU(), (torch.randn(2, 3),), dynamic_shapes=({0: Dim("rows", max=9)},))
    found = import_torch(program, (), tmp_path)
    assert "input_0 <= 9;" in Path(found.graph).read_text()


# --- what cannot be imported ------------------------------------------------------------------------------------------


class Refused(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        y = torch.linalg.qr(x)[0]
        return y + torch.rand_like(x), torch.relu(y)


def test_what_is_left_of_a_dynamic_shape_is_inferred(tmp_path: Path) -> None:
    class Heads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = torch.bmm(x, x.mT).view(-1, 2, x.shape[1], x.shape[1])
            return scores.view(scores.shape[0], 2, x.shape[1], -1).softmax(-1)

    shapes = ({0: 2 * Dim("batch", min=1, max=4), 1: Dim("time", max=6)},)
    steps = [(torch.randn(4, 5, 3),), (torch.randn(2, 3, 3),)]
    require_torch_agreement(Heads(), tmp_path, steps, dynamic_shapes=shapes)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Refused()

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)


def test_every_node_that_cannot_be_is_named_with_its_module_and_line(tmp_path: Path) -> None:
    with pytest.raises(ImportingError) as caught:
        import_torch(Outer().eval(), (torch.randn(3, 3),), tmp_path / "out")
    messages = [one.message for one in caught.value.diagnostics]
    assert len(messages) == 2
    assert "aten.linalg_qr.default" in messages[0]
    assert "in inner" in messages[0]
    assert "test_torch_import.py:" in messages[0]
    assert "random numbers" in messages[1]
    assert {one.code for one in caught.value.diagnostics} == {Code.UNSUPPORTED_NODE}
    assert not (tmp_path / "out").exists()


def test_shapes_that_depend_on_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportingError) as caught:
        import_torch(Function(lambda x, _i: x.nonzero()).eval(), (torch.randn(3), torch.zeros(1)), tmp_path / "out")
    assert caught.value.code is Code.UNSUPPORTED_NODE


READS_NUMBERS = Function(lambda x, _i: x.tolist()[0] > 0 and x).eval()


@pytest.mark.parametrize("module", [READS_NUMBERS, lambda x: x], ids=["reads numbers", "is no module"])
def test_modules_that_cannot_be_traced_are_refused_as_a_whole(tmp_path: Path, module: Any) -> None:
    with pytest.raises(ImportingError) as caught:
        import_torch(module, (torch.randn(3), torch.zeros(1)), tmp_path / "out")
    assert caught.value.code is Code.BAD_IMPORT_FILE
    assert not (tmp_path / "out").exists()


def test_saved_programs_are_not_loaded_by_the_command(tmp_path: Path) -> None:
    result = openinfer("import", str(tmp_path / "model.pt2"), "-o", str(tmp_path / "out"))
    assert result.status == 1
    assert "E760" in result.err
    assert "import_torch" in result.err
