"""Kernels of layers on a roofline: matrix products, passes over memory, the optimizer."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from netsim.base.values import dataclass
from netsim.workloads.model import Transformer
from netsim.workloads.setting import BLOCK, NARROW, Roofline, Setting


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer on one rank: `rows` tokens, `inputs` and `outputs` features, `batch` of it."""

    rows: int
    inputs: int
    outputs: int
    batch: int = 1

    @property
    def flops(self) -> float:
        """FLOPs of the forward pass; each of the two products of backward has as many."""
        return 2.0 * self.rows * self.inputs * self.outputs * self.batch


def forward(roofline: Roofline, dtype: str, layers: Iterable[Linear], pieces: int = 1) -> float:
    """Seconds of the forward products, whose rows come in `pieces` parts."""
    return sum(
        roofline.gemm_seconds(
            one.rows // pieces, one.outputs, one.inputs, dtype, one.batch * pieces
        )
        + (pieces - 1) * roofline.kernel
        for one in layers
    )


def input_gradients(
    roofline: Roofline, dtype: str, layers: Iterable[Linear], pieces: int = 1
) -> float:
    """Seconds of the products that make gradients of inputs."""
    turned = (replace(one, inputs=one.outputs, outputs=one.inputs) for one in layers)
    return forward(roofline, dtype, turned, pieces)


def weight_gradients(
    roofline: Roofline, dtype: str, layers: Iterable[Linear], result: float | None = None
) -> float:
    """Seconds of the products that make gradients of weights; `result` is what an element of them
    moves in memory, where it is not written in 16 bits but added up."""
    return sum(
        roofline.gemm_seconds(one.inputs, one.outputs, one.rows, dtype, one.batch, result)
        for one in layers
    )


# Kernels between products: how often each goes over the features of a token, fused or not.
# A pass reads or writes one activation. Fused kernels read their inputs and write their results
# once. Run op by op (`eager`), RMSNorm converts to fp32, squares, averages, scales, converts back
# and multiplies by its weight, each in a kernel of its own, and so do rotary embeddings and SwiGLU.
# LayerNorm and GELU are one kernel each in either case. Kernels that sum up rows are slower than
# streams: what they take is in passes of streams (tests/bench/kernels.py on an H100).

RESIDUAL = 3  # two in, their sum out


@dataclass(frozen=True)
class Elementwise:
    """Passes of each kind of kernel, forward and backward."""

    norm: float = 2
    norm_backward: float = 2
    rotary: float = 2
    gated: float = 3
    gated_backward: float = 6
    plain: float = 2
    plain_backward: float = 4


FUSED = Elementwise()
# RMSNorm in bytes a feature: to fp32 6, square 8, mean 4, scale 8, from fp32 6, weight 4; its
# autograd: weight 12, conversion 6, scale and its sum 20, square 20, sum 12, conversion 6; saved
# inputs are read again by each: 36 and 76, which take as long as 46 and 106 of streams. LayerNorm
# takes as long as 5.4 and 14.4. Rotary: two products, half turned (negate, join), sum.
# SwiGLU: sigmoid's product 2, product 3; backward two products and the function's own, 3 each.
# PyTorch's own models rotate complex numbers, which no compiler fuses: to fp32, product, back.
EAGER = Elementwise(norm=23, norm_backward=53, rotary=10, gated=5, gated_backward=9)
COMPILED = Elementwise(rotary=10)
LAYER_NORM = Elementwise(norm=2.7, norm_backward=7.2)


def elementwise_of(setting: Setting, *, gated: bool) -> Elementwise:
    """The passes of a setting's kernels; models with gated MLPs are those with RMSNorm."""
    if setting.elementwise == "fused":
        return COMPILED if setting.apart else FUSED
    return EAGER if gated else LAYER_NORM


# Inputs of narrow products are cast from 16 bits, once for the product and once turned for the
# gradient of weights. A norm writes its output so (`fused`); others take a kernel that reads 2
# bytes and writes 2, and scales that follow from the tensor one that looks for its largest element.

CASTS = {"delayed": (0.0, 4.0), "block": (0.0, 4.0), "row": (7.0, 10.3), "tensor": (5.8, 7.8)}
CAST_FP4 = (4.0, 8.0)  # Hadamard transform and largest element of the tensor first


def cast_bytes(setting: Setting, *, fused: bool = False) -> float:
    """What casting an element of an input of products moves; nothing where they are not narrow."""
    if not setting.narrow:
        return 0.0
    return (CAST_FP4 if setting.dtype == "nvfp4" else CASTS[setting.scaling])[not fused]


def cast_seconds(setting: Setting, elements: float, *, fused: bool = False) -> float:
    """Seconds of casting this number of elements of the inputs of products."""
    bytes_per_element = cast_bytes(setting, fused=fused)
    return setting.roofline.stream_seconds(elements * bytes_per_element, bytes_per_element > 0)


@dataclass(frozen=True)
class Shapes:
    """What one rank sees of a transformer in one micro-batch."""

    model: Transformer
    setting: Setting

    @property
    def tp(self) -> int:
        """Ranks that share each matrix."""
        return self.setting.degree("tp")

    @property
    def cp(self) -> int:
        """Ranks that share each sequence."""
        return self.setting.degree("cp")

    @property
    def tokens(self) -> int:
        """Tokens of the micro-batch after context parallelism."""
        return self.setting.tokens

    @property
    def local(self) -> int:
        """Tokens between the regions that tensor parallelism divides."""
        return self.tokens // self.tp if self.setting.sequence_parallel else self.tokens

    @property
    def message(self) -> int:
        """Bytes M of all activations between blocks, undivided by sequence parallelism."""
        return self.tokens * self.model.hidden * self.setting.element

    @property
    def cast_message(self) -> int:
        """Bytes of the same as inputs of products, which narrow recipes gather after the cast."""
        if self.setting.cast == self.setting.stored:
            return self.message
        return int(self.tokens * self.model.hidden * NARROW[self.setting.dtype])

    def width(self, passes: float, features: int, tokens: int) -> float:
        """Bytes that element-wise kernels move: `passes` over `features` of each token."""
        return passes * features * tokens * self.setting.element

    @cached_property
    def query_width(self) -> int:
        """Features of all queries of one token on this rank."""
        return self.model.heads * self.model.head // self.tp

    @cached_property
    def kv_width(self) -> int:
        """Features of all keys of one token on this rank."""
        if self.model.latent:
            return self.query_width
        return max(self.model.kv_width // self.tp, self.model.head)

    @cached_property
    def attention_in(self) -> tuple[Linear, ...]:
        """The products before attention."""
        m, t, latent = self.model, self.tokens, self.model.latent
        if latent is None:
            return self._sharing(self.query_width, self.kv_width, self.kv_width)
        heads = m.heads // self.tp
        return (
            Linear(t, m.hidden, latent.q_rank + latent.kv_rank + latent.rope),
            Linear(t, latent.q_rank, heads * (latent.nope + latent.rope)),
            Linear(t, latent.kv_rank, heads * (latent.nope + latent.value)),
        )

    def _sharing(self, *outputs: int) -> tuple[Linear, ...]:
        """Products of one input with several weights, which may be one."""
        widths = outputs if self.setting.apart else (sum(outputs),)
        return tuple(Linear(self.tokens, self.model.hidden, one) for one in widths)

    def added(self, layers: Sequence[Linear]) -> float:
        """Seconds of adding up the gradients of one input that products apart make."""
        more = (len(layers) - 1) * (self.setting.apart and self.model.latent is None)
        moved = self.width(RESIDUAL * more, self.model.hidden, self.tokens)
        return self.setting.roofline.stream_seconds(moved, more)

    @cached_property
    def attention_out(self) -> tuple[Linear, ...]:
        """The product after attention."""
        inputs = self.model.heads * self.head[1] // self.tp
        return (Linear(self.tokens, inputs, self.model.hidden),)

    @property
    def given_width(self) -> int:
        """Features of the keys that attention is given: PyTorch's own models repeat those that
        several heads of queries share."""
        return self.query_width if self.setting.apart else self.kv_width

    @property
    def in_turns(self) -> bool:
        """Whether attention takes what each rank of cp has by a kernel of its own, as rings do;
        PyTorch's also where all is gathered."""
        s = self.setting
        return s.context == "p2p" or (s.context == "all_gather" and s.data == "fsdp2")

    @cached_property
    def keys(self) -> float:
        """Keys that a query meets in one kernel of attention."""
        turns = self.cp if self.in_turns else 1
        return self.model.keys(self.setting.sequence, BLOCK) / turns

    @property
    def head(self) -> tuple[int, int]:
        """Features of a key and of a value, of one head."""
        latent = self.model.latent
        return (latent.nope + latent.rope, latent.value) if latent else (self.model.head,) * 2

    @property
    def attention_width(self) -> int:
        """Both together."""
        return sum(self.head)

    @cached_property
    def attention_flops(self) -> float:
        """FLOPs of scores and their use on this rank, forward."""
        keys = self.model.keys(self.setting.sequence, BLOCK)
        return 2.0 * self.tokens * keys * self.attention_width * self.model.heads / self.tp

    @property
    def scores(self) -> tuple[Linear, Linear]:
        """The products with all keys and with all values, which kernels that store scores make."""
        heads, (width, value) = self.model.heads // self.tp * self.setting.micro, self.head
        rows, keys = self.tokens // self.setting.micro, self.setting.sequence
        return Linear(rows, width, keys, heads), Linear(rows, keys, value, heads)

    def mlp_in(self, ffn: int) -> tuple[Linear, ...]:
        """The first product of a dense MLP."""
        return self._sharing(*[ffn // self.tp] * (2 if self.model.gated else 1))

    def mlp_out(self, ffn: int) -> tuple[Linear, ...]:
        """The second product of a dense MLP."""
        return (Linear(self.tokens, ffn // self.tp, self.model.hidden),)

    @property
    def routed(self) -> int:
        """Tokens that one rank sends to experts, each as often as it has experts."""
        return self.local * self.model.top_k

    @property
    def dispatched(self) -> int:
        """Bytes of one dispatch of the busiest rank."""
        nbytes = self.routed * self.model.hidden * self.setting.element * self._copies
        return int(nbytes * self.setting.imbalance)

    @property
    def _copies(self) -> float:
        """Ranks that a token goes to, over experts that it has: one copy is for all of a rank, or
        of the GPUs that NVLink joins, where experts are on others, too."""
        s, top_k = self.setting, self.model.top_k
        targets = s.degree("ep")
        if not s.deduplicated:
            return 1.0
        if targets > (near := max(1, s.joined // (s.degree("tp") * s.degree("cp")))):
            targets = -(-targets // near)
        return targets * (1 - (1 - 1 / targets) ** top_k) / top_k

    @property
    def expert_split(self) -> int:
        """Ranks that share each expert's matrices."""
        return self.tp if self.setting.expert_tensor else 1

    @cached_property
    def experts(self) -> tuple[tuple[Linear, ...], tuple[Linear, ...]]:
        """First and second products of the experts of the busiest rank."""
        m, split = self.model, self.expert_split
        here = max(1, m.experts // self.setting.degree("ep"))
        rows = max(1, int(self.routed * split * self.setting.imbalance) // here)
        width = (2 if m.gated else 1) * m.expert_ffn // split
        return (
            (Linear(rows, m.hidden, width, here),),
            (Linear(rows, m.expert_ffn // split, m.hidden, here),),
        )

    @property
    def logits(self) -> tuple[Linear, ...]:
        """The product with the vocabulary, or that of the pooler."""
        vocabulary = -(-self.model.vocabulary // self.tp)
        return (Linear(self.tokens * self.model.predicted, self.model.hidden, vocabulary),)


FP32 = 4
# fp32 numbers a parameter that are read and written: master copy, momentum, variance.
STATES = {"adam": 3, "adam-eager": 3, "sgd-momentum": 2, "sgd": 1}
# Bytes a parameter of Adam op by op in fp32, with the gradient's norm and its cast: decay 8, both
# moments 20 and 24, the root and what is added to it 16, the quotient 16, clipping 12, cast 8.
EAGER_ADAM = 104


def state_bytes(optimizer: str) -> int:
    """Bytes of optimizer states a parameter, the fp32 copy of the weights among them."""
    return FP32 * STATES[optimizer]


def optimizer_seconds(setting: Setting, parameters: int) -> float:
    """Seconds of updating parameters: states read and written, gradients read, weights written."""
    bytes_per_parameter = (
        2 * state_bytes(setting.optimizer) + setting.gradient_element + setting.element
    )
    if setting.optimizer == "adam-eager":
        bytes_per_parameter = EAGER_ADAM
    return setting.roofline.stream_seconds(float(bytes_per_parameter) * parameters)
