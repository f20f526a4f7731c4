"""ResNet-50 as a list of layers: convolutions, their batch norms, and the classifier."""

from netsim.workloads.model import Layer, LayerList, Plain, Tensor

IMAGE = 224
CLASSES = 1000
# He et al. 2016, table 1: blocks, width inside, width outside, and the stride of each stage.
STAGES = ((3, 64, 256, 1), (4, 128, 512, 2), (6, 256, 1024, 2), (3, 512, 2048, 2))
ELEMENT = 2  # bytes of an activation in half precision


def resnet50() -> LayerList:
    """ResNet-50 for images of 224 x 224 (He et al. 2016), the stride in the 3 x 3 convolution."""
    layers = [_convolution("conv1", 3, 64, 7, IMAGE // 2)]
    side, inputs = IMAGE // 4, 64
    for stage, (blocks, width, outputs, stride) in enumerate(STAGES, 2):
        for number in range(blocks):
            name = f"conv{stage}_{number + 1}"
            after = side // (stride if number == 0 else 1)
            layers += [
                _convolution(f"{name} 1x1", inputs, width, 1, side),
                _convolution(f"{name} 3x3", width, width, 3, after),
                _convolution(f"{name} out", width, outputs, 1, after),
            ]
            if number == 0:
                layers.append(_convolution(f"{name} shortcut", inputs, outputs, 1, after))
            side, inputs = after, outputs
    tensors = (Tensor("weight", inputs * CLASSES), Tensor("bias", CLASSES))
    flops = 2.0 * inputs * CLASSES
    plain = Plain(flops, 2 * flops, activation=inputs * ELEMENT, output=CLASSES * ELEMENT)
    layers.append(Layer("classifier", "plain", tensors, plain=plain))
    return LayerList(name="resnet-50", layers=tuple(layers))


def _convolution(name: str, inputs: int, outputs: int, kernel: int, side: int) -> Layer:
    """A convolution whose output is `side` pixels wide, with its batch norm."""
    weights = inputs * outputs * kernel * kernel
    flops, pixels = 2.0 * weights * side * side, outputs * side * side
    tensors = (
        Tensor("weight", weights), Tensor("norm weight", outputs), Tensor("norm bias", outputs),
    )  # fmt: skip
    # Kept for backward: what goes into the convolution's norm and what comes out of it.
    plain = Plain(flops, 2 * flops, activation=2 * pixels * ELEMENT, output=pixels * ELEMENT)
    return Layer(name, "plain", tensors, plain=plain)
