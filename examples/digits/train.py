"""Train the network of ``digits.oig`` and write ``digits.oinf``, ``digits_i8.oinf`` and ``test.npz``: half a minute.

``pip install scikit-learn`` (beside ``torch``); then ``python -m examples.digits.train``. The images are scikit-learn's
digits: 1797 of 8 by 8 pixels from 0 to 16. They are split at random, one in five for the test.
"""

import numpy as np
import numpy.typing as npt
import torch
from examples.digits.example import HERE
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812, the name everyone knows it by

from openinfer.oinf import save_file

EPOCHS = 80
CHANNELS = (16, 24, 32)
Weights = dict[str, npt.NDArray[np.float32]]


class Net(nn.Module):
    """Three convolutions, two of them followed by pooling, and one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = CHANNELS
        self.conv1 = nn.Conv2d(1, first, 3, padding=1)
        self.conv2 = nn.Conv2d(first, second, 3, padding=1)
        self.conv3 = nn.Conv2d(second, third, 3, padding=1)
        self.out = nn.Linear(third * 4, 10)

    def layers(self, x: Tensor) -> list[Tensor]:
        """What each layer gives."""
        a = F.relu(self.conv1(x))
        b = F.max_pool2d(F.relu(self.conv2(a)), 2)
        c = F.max_pool2d(F.relu(self.conv3(F.dropout(b, 0.2, self.training))), 2)
        return [a, b, c, self.out(F.dropout(c.flatten(1), 0.3, self.training))]

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.layers(x)[-1]


def moved(images: Tensor, generator: torch.Generator) -> Tensor:
    """The images a little shifted, turned, stretched and sheared."""
    noise = torch.rand(len(images), 6, generator=generator) * 2 - 1
    angle, stretch = noise[:, 0] * 0.2, 1 + noise[:, 1] * 0.12
    theta = torch.stack(
        [
            *(stretch * angle.cos(), -angle.sin() + noise[:, 2] * 0.1, noise[:, 3] * 0.2),
            *(angle.sin(), stretch * angle.cos(), noise[:, 4] * 0.2),
        ],
        1,
    ).reshape(-1, 2, 3)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def trained(images: Tensor, labels: Tensor) -> Net:
    """A network for these images."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=1e-2)
    batches = -(-len(images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, EPOCHS * batches)
    for _ in range(EPOCHS):
        order = torch.randperm(len(images), generator=generator)
        for part in (order[start : start + 64] for start in range(0, len(order), 64)):
            loss = F.cross_entropy(net(moved(images[part], generator)), labels[part], label_smoothing=0.05)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
    return net.eval()


def quantized(net: Net, images: Tensor) -> dict[str, npt.NDArray[np.generic]]:
    """Weights as i8 with a scale for each output channel, and what turns sums of products into the next layer's i8.

    Activations are never negative, so 0 to 127 stand for 0 to the largest value that the training images give; pixels
    are integers already. ``NAME.bias`` counts in units of input scale by weight scale, as the sums do. ``NAME.scale``
    says how many of these units one step of the next layer's i8 is worth; of the last layer, what a unit is worth.
    """
    with torch.no_grad():
        largest = [float(layer.quantile(0.9999)) for layer in net.layers(images)[:-1]]
    scales = [1 / 16, *(value / 127 for value in largest)]
    stored: dict[str, npt.NDArray[np.generic]] = {}
    for at, name in enumerate(("conv1", "conv2", "conv3", "out")):
        weight, bias = (net.get_parameter(f"{name}.{part}").detach().double().numpy() for part in ("weight", "bias"))
        axes = tuple(range(1, weight.ndim))
        scale = np.abs(weight).max(axis=axes) / 127
        unit = scale * scales[at]
        wide = scale.reshape(-1, *(1,) * len(axes))
        stored[f"{name}.weight"] = np.rint(weight / wide).astype(np.int8)
        stored[f"{name}.bias"] = np.rint(bias / unit).astype(np.int32)
        stored[f"{name}.scale"] = (scales[at + 1] / unit if name != "out" else unit).astype(np.float32)
    return stored


def main() -> None:
    """Train, quantize, write."""
    digits = load_digits()
    pixels = digits.images.astype(np.uint8)[:, None]
    chosen = np.random.default_rng(0).permutation(len(pixels))
    test, train = chosen[: len(chosen) // 5], chosen[len(chosen) // 5 :]
    images, labels = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digits.target)
    net = trained(images[train], labels[train])
    with torch.no_grad():
        right = (net(images[test]).argmax(1) == labels[test]).sum()
    print(f"{int(right)} of {len(test)} test images right in PyTorch")
    weights = {name: value.numpy() for name, value in net.state_dict().items()}
    sizes = dict(zip(("C1", "C2", "C3"), CHANNELS, strict=True))
    save_file(HERE / "digits.oinf", weights, sizevars=sizes)
    save_file(HERE / "digits_i8.oinf", quantized(net, images[train]), sizevars=sizes)
    np.savez_compressed(HERE / "test.npz", images=pixels[test], labels=digits.target[test].astype(np.uint8))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
