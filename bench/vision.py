"""Networks for images beside those of ``bench.cnns``: residual, of detectors and of segmentation; random weights."""

import numpy as np
from bench.cnns import Cnn, Map
from bench.models import Model

TWICE = np.array([1, 1, 2, 2], np.float32)


def pooled(net: Cnn, x: Map, kernel: int, stride: int) -> Map:
    """The largest of each window."""
    pad = (kernel - 1) // 2
    height, width = ((extent + 2 * pad - kernel) // stride + 1 for extent in (x.height, x.width))
    h = net.value((1, x.channels, height, width))
    net.lines.append(f"op max_pool({x.name}, kernel=[{kernel}, {kernel}], strides=[{stride}], pads=[{pad}]) >> {h};")
    made = net.onnx.node("MaxPool", x.onnx, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
    return Map(h, made, x.channels, height, width)


def twice_as_large(net: Cnn, x: Map) -> Map:
    """Each position four times."""
    height, width = 2 * x.height, 2 * x.width
    h = net.value((1, x.channels, height, width))
    net.lines.append(
        f'op resize({x.name}, size=[{height}, {width}], coordinates="asymmetric", nearest="floor") >> {h};'
    )
    net.onnx.constants["twice"] = TWICE
    own = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return Map(h, net.onnx.node("Resize", x.onnx, "", "twice", **own), x.channels, height, width)


def joined(net: Cnn, x: Map, y: Map) -> Map:
    """The channels of both."""
    channels = x.channels + y.channels
    h = net.value((1, channels, x.height, x.width))
    net.lines.append(f"op concat({x.name}, {y.name}, axis=1) >> {h};")
    return Map(h, net.onnx.node("Concat", x.onnx, y.onnx, axis=1), channels, x.height, x.width)


def with_silu(net: Cnn, x: Map) -> Map:
    net.lines.append(f"op silu({x.name}) >> {x.name};")
    made = net.onnx.node("Mul", x.onnx, net.onnx.node("Sigmoid", x.onnx))
    return Map(x.name, made, x.channels, x.height, x.width)


def bottleneck(net: Cnn, x: Map, features: int, stride: int) -> Map:
    """Narrower, 3 x 3, wider; what it began with is added, through a convolution where its shape is another."""
    h = net.conv(x, features, activation="relu")
    h = net.conv(h, features, (3, 3), stride, activation="relu")
    h = net.conv(h, 4 * features)
    same = x if x.channels == h.channels else net.conv(x, 4 * features, (1, 1), stride)
    return net.activated(net.add(h, same), "relu")


def resnet50(size: int = 224) -> Model:
    net = Cnn(3, size, size)
    h = pooled(net, net.conv(net.input, 64, (7, 7), 2, activation="relu"), 3, 2)
    for features, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for number in range(count):
            h = bottleneck(net, h, features, 2 if number == 0 and features > 64 else 1)
    return net.model(f"ResNet-50 shapes, {size} x {size}", net.linear(net.mean(h), 1000))


def yolo_head(size: int = 40, channels: int = 128, outputs: int = 255) -> Model:
    """Two scales of a detector: down, up again beside what was there, and three anchors of 85 numbers in each place."""
    net = Cnn(channels, size, size)

    def conv(x: Map, features: int, kernel: int, stride: int = 1) -> Map:
        return with_silu(net, net.conv(x, features, (kernel, kernel), stride))

    small = conv(conv(net.input, 2 * channels, 3, 2), channels, 1)
    both = joined(net, twice_as_large(net, small), net.input)
    large = conv(conv(both, channels, 1), channels, 3)
    rows = []
    for x in (large, conv(small, 2 * channels, 3)):
        found = net.conv(x, outputs)
        places = found.height * found.width
        h = net.value((1, outputs, places))
        net.lines.append(f"op reshape({found.name}, shape=[1, {outputs}, {places}]) >> {h};")
        rows.append((h, net.onnx.node("Reshape", found.onnx, net.onnx.ints(1, outputs, places)), places))
    total = sum(places for _, _, places in rows)
    h = net.value((1, outputs, total))
    net.lines.append(f"op concat({rows[0][0]}, {rows[1][0]}, axis=2) >> {h}; op sigmoid({h}) >> {h};")
    made = net.onnx.node("Sigmoid", net.onnx.node("Concat", rows[0][1], rows[1][1], axis=2))
    return net.model(f"YOLO-style head, {size} x {size}", Map(h, made, outputs, 1, total))


def unet_block(size: int = 128, features: int = 32) -> Model:
    """A level of a U-Net: two convolutions, the same below at half the size, up again beside the first, two more."""
    net = Cnn(features, size, size)

    def twice(x: Map, wide: int) -> Map:
        return net.conv(net.conv(x, wide, (3, 3), activation="relu"), wide, (3, 3), activation="relu")

    upper = twice(net.input, features)
    lower = twice(pooled(net, upper, 2, 2), 2 * features)
    h = twice(joined(net, twice_as_large(net, lower), upper), features)
    return net.model(f"U-Net block, {features} x {size} x {size}", net.conv(h, 2))
