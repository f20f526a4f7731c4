"""The forward and backward pass of every layer of a setting, as merged parts; equal ones once."""

from dataclasses import dataclass, field, replace

from netsim.workloads.block import backward_block, forward_block
from netsim.workloads.ends import backward_embedding, backward_head, forward_embedding, forward_head
from netsim.workloads.model import Layer, Transformer
from netsim.workloads.parts import Part, kernel, merged
from netsim.workloads.setting import Setting
from netsim.workloads.shapes import Shapes


@dataclass(frozen=True)
class Passes:
    """The parts of one layer. `weights` are the kernels of backward that only gradients of weights
    need, apart from the rest (`inputs`), for pipelines that shift them.
    """

    forward: tuple[Part, ...]
    backward: tuple[Part, ...]
    inputs: tuple[Part, ...]
    weights: tuple[Part, ...]


@dataclass
class PassTable:
    """The passes of all layers of a setting, each found once; equal blocks share theirs."""

    setting: Setting
    known: dict[object, Passes] = field(default_factory=dict)

    def of(self, layer: Layer) -> Passes:
        """The passes of a layer; its times are the user's where they are given."""
        own = layer.kind == "plain" or layer.name in self.setting.layer_seconds
        key: object = layer.name if own else (layer.kind, layer.moe)
        if key not in self.known:
            self.known[key] = _passes(self.setting, layer)
        return self.known[key]


def _passes(setting: Setting, layer: Layer) -> Passes:
    ahead, back = _parts(setting, layer)
    measured = setting.layer_seconds.get(layer.name)
    if measured:
        ahead, back = _lasting(ahead, measured[0]), _lasting(back, measured[1])
    if setting.recompute == "full" and layer.kind != "embedding":
        back = [*_again(ahead), *back]
    weights = [replace(part, weight=False, needs=()) for part in back if part.weight]
    inputs = [part for part in back if not part.weight]
    whole = [replace(part, weight=False) for part in back]
    return Passes(merged(ahead), merged(whole), merged(inputs), merged(weights))


def _parts(setting: Setting, layer: Layer) -> tuple[list[Part], list[Part]]:
    if layer.kind == "plain" or not isinstance(setting.model, Transformer):
        return _plain(setting, layer)
    shapes = Shapes(setting.model, setting)
    if layer.kind == "embedding":
        return forward_embedding(shapes), backward_embedding(shapes)
    if layer.kind == "head":
        return forward_head(shapes), backward_head(shapes)
    return forward_block(shapes, layer), backward_block(shapes, layer)


def _plain(setting: Setting, layer: Layer) -> tuple[list[Part], list[Part]]:
    plain, samples = layer.plain, setting.micro
    moved = layer.parameters * setting.element + samples * (plain.activation + plain.output)
    ahead, back = plain.forward, plain.backward
    if ahead is None:
        ahead = setting.roofline.plain_seconds(plain.flops * samples, moved, setting.dtype)
    if back is None:
        flops = plain.backward_flops * samples
        back = setting.roofline.plain_seconds(flops, 2 * moved, setting.dtype)
    halves = (kernel("dgrad", back / 2), kernel("wgrad", back / 2, weight=True))
    return [kernel("forward", ahead)], list(halves)


def _lasting(parts: list[Part], seconds: float) -> list[Part]:
    """The same parts, with kernels that take so long together."""
    total = sum(part.seconds for part in parts)
    if not total:
        return parts
    return [replace(part, seconds=part.seconds * seconds / total) for part in parts]


def _again(parts: list[Part]) -> list[Part]:
    """A forward pass repeated within backward."""
    return [
        replace(
            part,
            name=f"{part.name} again",
            needs=tuple(f"{need} again" for need in part.needs),
        )
        for part in parts
    ]
