"""Models as layers (transformers, and lists of layers): parameters and activations of each layer;
published models by name.

Counts are of whole layers, before any parallelism divides them.
"""

import tomllib
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from netsim.base.errors import InputError, suggest
from netsim.base.values import dataclass

Split = Literal["", "tp"]
LayerKind = Literal["embedding", "block", "head", "plain"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter tensor of `count` elements.

    - `split`: "tp" if tensor parallelism divides it, otherwise empty.
    - `copies`: the number of such tensors, such as one for each expert.
    - `expert`: whether each copy belongs to an expert.
    - `frozen`: whether it stays as it is, so that it has no gradient and no optimizer state.
    """

    name: str
    count: int
    split: Split = ""
    copies: int = 1
    expert: bool = False
    frozen: bool = False

    @property
    def total(self) -> int:
        """The number of elements of all copies together."""
        return self.count * self.copies


@dataclass(frozen=True, slots=True)
class Plain:
    """The costs of a layer of a custom model.

    - `flops`, `backward_flops`: FLOPs of one sample.
    - `forward`, `backward`: seconds of one micro-batch that were measured; None: FLOPs are used.
    - `activation`: bytes that are stored for the backward pass, of one sample.
    - `output`: bytes that are passed on to the next layer, of one sample.
    """

    flops: float = 0.0
    backward_flops: float = 0.0
    forward: float | None = None
    backward: float | None = None
    activation: float = 0.0
    output: float = 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: embedding, transformer block, head, or a plain layer of a custom model.

    - `moe`: whether a block has experts.
    - `mixer`: the kind of a hybrid model's layer; empty for a block of attention and MLP.
    - `reused`: tensors of an earlier layer that this one computes with, too.
    """

    name: str
    kind: LayerKind
    tensors: tuple[Tensor, ...]
    moe: bool = False
    mixer: str = ""
    reused: tuple[Tensor, ...] = ()
    plain: Plain = field(default_factory=Plain)

    @property
    def parameters(self) -> int:
        """The number of parameters of the layer."""
        return sum(tensor.total for tensor in self.tensors)

    @property
    def expert_parameters(self) -> int:
        """The number of parameters of the layer's experts."""
        return sum(tensor.total for tensor in self.tensors if tensor.expert)


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention.

    - `q_rank`, `kv_rank`: features of the compressed queries, and of the compressed keys and
      values.
    - `nope`, `rope`: features of a head's key without and with rotary embedding.
    - `value`: features of a head's value.
    """

    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True, slots=True)
class Mamba:
    """Mamba-2 layers.

    - `heads`, `head`: heads, and features of each.
    - `groups`: groups of heads that share the two vectors by which states are written and read.
    - `state`: features of a state; each feature of a head has a state.
    - `convolution`: tokens that the causal convolution sees.
    - `chunk`: tokens of a chunk of the scan.
    """

    heads: int
    head: int
    groups: int
    state: int
    convolution: int
    chunk: int

    @property
    def inner(self) -> int:
        """The features of all heads of one token."""
        return self.heads * self.head

    @property
    def convolved(self) -> int:
        """The features that pass the convolution: inputs of heads and both vectors of groups."""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """The features that the first product makes: those, a gate, and a step size of each
        head.
        """
        return self.convolved + self.inner + self.heads


# Layers of hybrid models, one character each (Megatron's `hybrid_layer_pattern`).
MAMBA = "M"
ATTENTION = "*"
EXPERTS = "E"
MLP = "-"


@dataclass(frozen=True, slots=True)
class Adapters:
    """Adapters of low rank (LoRA, Hu et al. 2021), which are trained beside frozen weights.

    An adapter of a linear layer is a product with `rank` outputs, followed by one with `rank`
    inputs, whose result is added to that of the layer.

    - `targets`: the linear layers of each block that have an adapter, of `ADAPTED`.
    """

    rank: int
    targets: tuple[str, ...]


# Linear layers that may have an adapter, by the names that Megatron has for them: the name of the
# adapter's tensors, and whether tensor parallelism divides the layer's inputs (else its outputs).
ADAPTED = {
    "linear_qkv": ("qkv adapter", False),
    "linear_proj": ("proj adapter", True),
    "linear_fc1": ("mlp in adapter", False),
    "linear_fc2": ("mlp out adapter", True),
}


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A decoder (or encoder) in numbers.

    - `sequence`: tokens of a sequence in its usual training.
    - `head_size`: features of a head (0: `hidden` / `heads`).
    - `gated`: whether the MLP has three matrices.
    - `tied`: whether embedding and head share their weights.
    - `positions`, `segments`: entries of learned embeddings of positions and segments.
    - `expert_ffn`, `shared_ffn`: features inside one expert, and inside the MLP for all tokens.
    - `clamped`: whether the inputs of the experts' gate are clamped.
    - `dense_layers`: the number of first layers without experts.
    - `windowed`: the fraction of the layers in which a token attends to the last `window` tokens
      only.
    - `predicted`: the number of tokens that the head predicts for each token.
    - `pattern`: of a hybrid model, the kind of each layer, one character each: Mamba-2, attention,
      experts or MLP. Otherwise empty: every block has attention, and an MLP or experts.
    - `again`: the kinds of its last layers that have the weights of the layers before them: another
      token is predicted by the same layers.
    - `mamba`: its Mamba-2 layers.
    - `rotary`: whether queries and keys have rotary embeddings.
    - `expert_latent`: features to which tokens are compressed before they are sent to experts (0:
      they are not).
    - `adapters`: if these are trained, all other weights are frozen.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    head_size: int = 0
    gated: bool = True
    biases: bool = False
    norm_biases: bool = False
    tied: bool = False
    positions: int = 0
    segments: int = 0
    pooler: bool = False
    qk_norm: bool = False
    causal: bool = True
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    clamped: bool = False
    dense_layers: int = 0
    latent: Latent | None = None
    window: int = 0
    windowed: float = 0.0
    predicted: int = 1
    pattern: str = ""
    again: str = ""
    mamba: Mamba | None = None
    rotary: bool = True
    expert_latent: int = 0
    adapters: Adapters | None = None

    def keys(self, sequence: int, edge: int = 0) -> float:
        """The mean number of keys that a query meets, over all layers.

        `edge` is the number of rows of a tile of the attention kernel, which also computes the
        masked keys of tiles on the diagonal.
        """
        mean_keys = (sequence + edge) / 2 if self.causal else float(sequence)
        return mean_keys + self.windowed * (min(mean_keys, self.window + edge) - mean_keys)

    @property
    def head(self) -> int:
        """The number of features of one head's query."""
        return self.head_size or self.hidden // self.heads

    @property
    def expert_width(self) -> int:
        """The features of a token that experts read and write."""
        return self.expert_latent or self.hidden

    @property
    def kv_width(self) -> int:
        """The number of features of all keys of one token."""
        return self.kv_heads * self.head

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return sum(layer.parameters for layer in layers_of(self))


@dataclass(frozen=True, kw_only=True)
class LayerList:
    """A model that is a list of plain layers, such as a convolutional one."""

    name: str
    layers: tuple[Layer, ...]

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return sum(layer.parameters for layer in self.layers)


Model = Transformer | LayerList


def layers_of(model: Model) -> tuple[Layer, ...]:
    """The layers of a model in the order of the forward pass."""
    if isinstance(model, LayerList):
        return model.layers
    blocks = [_block(model, number) for number in range(model.layers)]
    layers = (_embedding(model), *blocks, _head(model))
    if model.adapters is None:
        return layers
    return tuple(_with_adapters(model, model.adapters, layer) for layer in layers)


def _with_adapters(model: Transformer, adapters: Adapters, layer: Layer) -> Layer:
    """The layer with all its weights frozen, and with adapters if it is a block."""
    tensors = [replace(tensor, frozen=True) for tensor in layer.tensors]
    if layer.kind == "block":
        for target in adapters.targets:
            name, _ = ADAPTED[target]
            inputs, outputs = adapted_widths(model, target)
            tensors += [
                Tensor(f"{name} in", inputs * adapters.rank, "tp"),
                Tensor(f"{name} out", adapters.rank * outputs, "tp"),
            ]
    return replace(layer, tensors=tuple(tensors))


def adapted_widths(model: Transformer, target: str) -> tuple[int, int]:
    """The features that a linear layer with an adapter reads and writes, of one token."""
    width = model.heads * model.head
    return {
        "linear_qkv": (model.hidden, width + 2 * model.kv_width),
        "linear_proj": (width, model.hidden),
        "linear_fc1": (model.hidden, (2 if model.gated else 1) * model.ffn),
        "linear_fc2": (model.ffn, model.hidden),
    }[target]


def _embedding(m: Transformer) -> Layer:
    """The layer before the blocks: the tables of tokens, positions and segments."""
    tensors = [Tensor("tokens", m.vocabulary * m.hidden, "tp")]
    if m.positions:
        tensors.append(Tensor("positions", m.positions * m.hidden))
    if m.segments:
        tensors += [Tensor("segments", m.segments * m.hidden), *_norm(m, "norm", m.hidden)]
    return Layer("embedding", "embedding", tuple(tensors))


def _head(m: Transformer) -> Layer:
    """The layer after the blocks: norm and logits, or the pooler."""
    tensors: list[Tensor] = []
    if m.pooler:
        tensors += [Tensor("pooler", m.hidden * m.hidden), Tensor("pooler bias", m.hidden)]
    else:
        tensors += _norm(m, "norm", m.hidden)
    if not m.tied:
        tensors.append(Tensor("logits", m.vocabulary * m.hidden, "tp"))
    return Layer("head", "head", tuple(tensors))


def _block(m: Transformer, number: int) -> Layer:
    """The transformer block with a number, or the layer of a hybrid model."""
    if m.pattern:
        return _hybrid_layer(m, number)
    moe = bool(m.experts) and number >= m.dense_layers
    mlp = _experts(m) if moe else _mlp(m, "mlp", m.ffn)
    attention = _latent_attention(m, m.latent) if m.latent else _attention(m)
    norms = [*_norm(m, "norm1", m.hidden), *_norm(m, "norm2", m.hidden)]
    return Layer(f"layer {number}", "block", (*attention, *mlp, *norms), moe)


def _hybrid_layer(m: Transformer, number: int) -> Layer:
    """The layer of a hybrid model with a number: a norm and one of the kinds of `pattern`."""
    kinds = m.pattern + m.again
    mixer = kinds[number]
    if mixer == MAMBA:
        assert m.mamba is not None
        tensors = _mamba(m, m.mamba)
    else:
        tensors = {
            ATTENTION: _attention(m),
            EXPERTS: _experts(m) if m.experts else [],
            MLP: _mlp(m, "mlp", m.ffn),
        }[mixer]
    tensors = [*tensors, *_norm(m, "norm1", m.hidden)]
    name = f"layer {number}"
    if number >= len(m.pattern):
        return Layer(name, "block", (), mixer == EXPERTS, mixer, tuple(tensors))
    return Layer(name, "block", tuple(tensors), mixer == EXPERTS, mixer)


def _mamba(m: Transformer, mamba: Mamba) -> list[Tensor]:
    """The tensors of a Mamba-2 layer without its first norm."""
    return [
        Tensor("mamba in", m.hidden * mamba.projected, "tp"),
        Tensor("convolution", mamba.convolved * mamba.convolution, "tp"),
        Tensor("convolution bias", mamba.convolved, "tp"),
        Tensor("decay, step size and skip", 3 * mamba.heads, "tp"),
        Tensor("mamba norm", mamba.inner, "tp"),
        Tensor("mamba out", mamba.inner * m.hidden, "tp"),
    ]


def _norm(m: Transformer, name: str, width: int) -> list[Tensor]:
    """The tensors of a norm over `width` features."""
    return [Tensor(name, width), *([Tensor(f"{name} bias", width)] if m.norm_biases else [])]


def _linear(m: Transformer, name: str, inputs: int, outputs: int, *, row: bool) -> list[Tensor]:
    """The tensors of a linear layer. `row`: it is row-parallel, so tensor parallelism does not
    divide its bias.
    """
    tensors = [Tensor(name, inputs * outputs, "tp")]
    if m.biases:
        tensors.append(Tensor(f"{name} bias", outputs, "" if row else "tp"))
    return tensors


def _attention(m: Transformer) -> list[Tensor]:
    """The tensors of attention."""
    width = m.heads * m.head
    norms = [Tensor("q norm", m.head), Tensor("k norm", m.head)] if m.qk_norm else []
    return [
        *_linear(m, "qkv", m.hidden, width + 2 * m.kv_width, row=False),
        *norms,
        *_linear(m, "proj", width, m.hidden, row=True),
    ]


def _latent_attention(m: Transformer, latent: Latent) -> list[Tensor]:
    """The tensors of multi-head latent attention."""
    queries = m.heads * (latent.nope + latent.rope)
    return [
        Tensor("q down", m.hidden * latent.q_rank),
        Tensor("q norm", latent.q_rank),
        Tensor("q up", latent.q_rank * queries, "tp"),
        Tensor("kv down", m.hidden * (latent.kv_rank + latent.rope)),
        Tensor("kv norm", latent.kv_rank),
        Tensor("kv up", latent.kv_rank * m.heads * (latent.nope + latent.value), "tp"),
        Tensor("proj", m.heads * latent.value * m.hidden, "tp"),
    ]


def _mlp(m: Transformer, name: str, ffn: int) -> list[Tensor]:
    """The tensors of an MLP with `ffn` features inside."""
    width = 2 * ffn if m.gated else ffn
    return [
        *_linear(m, f"{name} in", m.hidden, width, row=False),
        *_linear(m, f"{name} out", ffn, m.hidden, row=True),
    ]


def _experts(m: Transformer) -> list[Tensor]:
    """The tensors of a block's router, shared MLP and experts."""
    width = 2 * m.expert_ffn if m.gated else m.expert_ffn
    shared = _mlp(m, "shared", m.shared_ffn) if m.shared_ffn else []
    latent = []
    if m.expert_latent:  # before tokens are sent to experts, and after they are back
        latent = [
            Tensor("latent in", m.hidden * m.expert_latent),
            Tensor("latent out", m.expert_latent * m.hidden),
        ]
    return [
        Tensor("router", m.hidden * m.experts),
        *latent,
        *shared,
        Tensor("experts in", m.expert_width * width, "tp", m.experts, expert=True),
        Tensor("experts out", m.expert_ffn * m.expert_width, "tp", m.experts, expert=True),
    ]


IMAGE = 224
CLASSES = 1000
# He et al. 2016, table 1: blocks, width inside, width outside, and the stride of each stage.
STAGES = ((3, 64, 256, 1), (4, 128, 512, 2), (6, 256, 1024, 2), (3, 512, 2048, 2))
ELEMENT = 2  # bytes of an activation in half precision


def resnet50() -> LayerList:
    """ResNet-50 for images of 224 x 224 (He et al. 2016), with the stride in the 3 x 3
    convolution.
    """
    layers = [_convolution("conv1", 3, 64, 7, IMAGE // 2)]
    side = IMAGE // 4
    inputs = 64
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
            side = after
            inputs = outputs
    tensors = (Tensor("weight", inputs * CLASSES), Tensor("bias", CLASSES))
    flops = 2.0 * inputs * CLASSES
    plain = Plain(flops, 2 * flops, activation=inputs * ELEMENT, output=CLASSES * ELEMENT)
    layers.append(Layer("classifier", "plain", tensors, plain=plain))
    return LayerList(name="resnet-50", layers=tuple(layers))


def _convolution(name: str, inputs: int, outputs: int, kernel: int, side: int) -> Layer:
    """A convolution with `kernel` x `kernel` weights on images of `side` x `side` pixels of its
    output, and its norm.
    """
    weights = inputs * outputs * kernel * kernel
    flops = 2.0 * weights * side * side
    pixels = outputs * side * side
    tensors = (
        Tensor("weight", weights),
        Tensor("norm weight", outputs),
        Tensor("norm bias", outputs),
    )
    # The input and the output of the norm after the convolution are stored for the backward pass.
    plain = Plain(flops, 2 * flops, activation=2 * pixels * ELEMENT, output=pixels * ELEMENT)
    return Layer(name, "plain", tensors, plain=plain)


# Published models by name, whose figures are in `models.toml`.


_FILE = Path(__file__).with_name("models.toml")
_FIGURES: dict[str, dict[str, Any]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
_PARTS: dict[str, Any] = {"latent": Latent, "mamba": Mamba}
MODELS: dict[str, Model] = {
    name: Transformer(
        name=name,
        **figures | {key: _PARTS[key](**figures[key]) for key in figures if key in _PARTS},
    )
    for name, figures in _FIGURES.items()
}
MODELS["resnet-50"] = resnet50()


def model_named(name: str) -> Model:
    """The published model with this name; an InputError if there is none."""
    if name not in MODELS:
        names = ", ".join(MODELS)
        raise InputError(f"expected a model ({names}), got {name!r}{suggest(name, MODELS)}")
    return MODELS[name]
