"""Branches, loops and complex numbers of PyTorch, and ops that are composed of several."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.importing.torch_models import require_torch_agreement
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F  # noqa: N812  (as everybody calls it)

from openinfer import ImportingError
from openinfer.importing import import_torch

run_while: Any = while_loop
"""It has no types."""


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(3)


class Plain(nn.Module):
    """A function of one tensor, with modules and buffers beside it."""

    def __init__(self, function: Callable[[Any, torch.Tensor], Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)
        self._function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self._function(self, x)


# --- branches and loops -----------------------------------------------------------------------------------------------


def test_a_condition_chooses_a_branch_in_each_step(tmp_path: Path) -> None:
    net = Plain(
        lambda s, x: torch.cond(x.sum() > 0, s.one, lambda a: s.other(a).relu(), (x,)),
        one=nn.Linear(4, 3),
        other=nn.Linear(4, 3),
    )
    x = torch.randn(2, 4).abs()
    text, _ = require_torch_agreement(net, tmp_path, [(x,), (-x,), (x,)], in_c=True)
    assert "branch gt then otherwise;" in text
    assert '@ref("one.weight")' in text


def test_a_loop_ends_when_its_condition_does(tmp_path: Path) -> None:
    """The counter says how often it runs at most, and data whether it ends before."""
    net = Plain(
        lambda s, x: run_while(
            lambda i, a: (i < 9) & (a.sum() < 30), lambda i, a: (i + 1, a + s.step(a).abs()), (torch.tensor(0), x)
        ),
        step=nn.Linear(4, 4),
    )
    steps = [(torch.zeros(3, 4),), (torch.full((3, 4), 2.0),), (torch.full((3, 4), 9.0),)]
    text, _ = require_torch_agreement(net, tmp_path, steps, in_c=True)
    assert "(i in 0..9) {\n        branch goes_on iteration ended;" in text


def test_a_loop_that_only_counts_has_no_condition(tmp_path: Path) -> None:
    net = Plain(lambda _, x: run_while(lambda i, _a: i <= 7, lambda i, a: (i + 2, a * 1.5 + i), (torch.tensor(1), x)))
    text, _ = require_torch_agreement(net, tmp_path, [(torch.randn(3, 4),)])
    assert "(i in 0..4) {" in text
    assert "branch" not in text


def test_a_branch_inside_of_a_loop(tmp_path: Path) -> None:
    def iteration(i: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, torch.cond(a.sum() > 0, lambda b: b - 2.5, lambda b: b * 0.5 + 0.75, (a,))

    net = Plain(lambda _, x: run_while(lambda i, _a: i < 6, iteration, (torch.tensor(0), x)))
    require_torch_agreement(net, tmp_path, [(torch.randn(3, 4),), (torch.randn(3, 4),)])


def test_a_loop_without_a_bound_is_refused_with_how_to_give_one(tmp_path: Path) -> None:
    net = Plain(lambda _, x: run_while(lambda a: a.sum() < 100, lambda a: (a + 1,), (x,)))
    with pytest.raises(ImportingError, match="its number of iterations has no upper bound") as caught:
        import_torch(net, (torch.ones(3),), tmp_path)
    assert "(i < 100) & ..." in str(caught.value)


def test_a_scan_carries_values_and_collects_rows(tmp_path: Path) -> None:
    net = Plain(
        lambda s, x: scan(lambda c, a: (c * 0.9 + s.step(a), c.relu()), torch.zeros(4), x), step=nn.Linear(4, 4)
    )
    text, _ = require_torch_agreement(net, tmp_path, [(torch.randn(5, 4),)], in_c=True)
    assert "loop scan (s in 0..5) {" in text


def test_what_a_branch_cannot_do_is_said_of_its_node(tmp_path: Path) -> None:
    net = Plain(lambda _, x: torch.cond(x.sum() > 0, lambda a: a.mode(-1)[0], lambda a: a.sum(-1), (x,)))
    with pytest.raises(ImportingError) as caught:
        import_torch(net, (torch.randn(2, 4),), tmp_path)
    (problem,) = caught.value.diagnostics
    assert "aten.mode.default" in problem.message


# --- complex numbers --------------------------------------------------------------------------------------------------


def _quotients(c: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (c / (c.conj() + 3)).real, (2 / (c + 3)).imag, (c - 1).angle()[..., 1:-1]


WINDOW = torch.hann_window(16)
SPECTRA: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "pairs": lambda s, x: torch.view_as_real(torch.stft(x, 16, 4, window=s.w, return_complex=True)),
    "magnitudes": lambda s, x: torch.stft(
        x, 16, 4, window=s.w, center=False, normalized=True, onesided=False, return_complex=True
    ).abs(),
    "and back": lambda s, x: torch.istft(
        torch.stft(x, 16, 4, window=s.w, return_complex=True) * x[0, 0].abs(), 16, 4, window=s.w, length=48
    ),
    "convolution": lambda _, x: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x.flip(-1)), n=48),
    "there and back": lambda _, x: torch.fft.ifft(torch.fft.fft(x, norm="ortho"), norm="forward").real,
    "two axes": lambda _, x: (torch.fft.fft2(x).imag, torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape)),
    "quotients": lambda _, x: _quotients(torch.fft.rfft(x)),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_spectra_are_pairs_of_real_numbers(tmp_path: Path, name: str) -> None:
    require_torch_agreement(Plain(SPECTRA[name], w=WINDOW), tmp_path, [(torch.randn(2, 48),)], tolerance=1e-4)


def test_rotations_by_a_complex_buffer(tmp_path: Path) -> None:
    """As the first code of Llama rotates: pairs as complex numbers, times a table of them."""
    table = torch.polar(torch.ones(5, 4), torch.rand(5, 4))

    def rotated(s: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(x.reshape(2, 5, 4, 2)) * s.table).flatten(2)

    text, _ = require_torch_agreement(Plain(rotated, table=table), tmp_path, [(torch.randn(2, 5, 8),)])
    assert "table_real: f32[5, 4]" in text


def test_complex_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportingError, match="a result is complex") as caught:
        import_torch(Plain(lambda _, x: torch.fft.rfft(x)), (torch.randn(8),), tmp_path)
    assert "torch.view_as_real" in str(caught.value)


# --- ops of several ---------------------------------------------------------------------------------------------------

COMPOSED: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "order": lambda _, x: (x.median(1)[0], x.median(), *x.kthvalue(2, -1, keepdim=True)),
    "running": lambda _, x: (*x.cummax(1), *x.round().cummin(-1), x.logcumsumexp(1)),
    "places": lambda _, x: (
        torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x.round(), right=True),
        torch.searchsorted(x.sort(-1)[0], x[..., :2].contiguous(), out_int32=True),
        torch.histc(x, 4, -1, 1),
    ),
    "masked": lambda _, x: x.masked_scatter(x[:1] > 0, x.flip(0)),
    "signs": lambda _, x: (torch.copysign(x, -x), torch.hypot(x, x + 1), x.angle()),
    "bilinear": lambda s, x: s.product(x, x.flip(1)),
    "bags": lambda s, x: (s.bags(x.argsort(-1)[0]), s.largest(x.argsort(-1)[1])),
    "uneven pools": lambda _, x: F.adaptive_max_pool2d(x, (2, 4)),
    "smoothed": lambda _, x: (
        F.interpolate(x[None], size=(2, 3), mode="bilinear", antialias=True),
        F.interpolate(x[None], size=(2, 9), mode="bicubic", antialias=True),
    ),
    "norm": lambda s, x: s.norm(x),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_ops_composed_of_others(tmp_path: Path, name: str) -> None:
    net = Plain(
        COMPOSED[name],
        product=nn.Bilinear(6, 6, 4),
        bags=nn.EmbeddingBag(7, 3, mode="mean"),
        largest=nn.EmbeddingBag(7, 3, mode="max"),
        norm=nn.InstanceNorm1d(5, track_running_stats=True),
    )
    require_torch_agreement(net, tmp_path, [(torch.randn(2, 5, 6),)])
