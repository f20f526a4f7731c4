"""Seconds of the kernels of layers on a roofline: matrix products, element-wise kernels, the
optimizer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from netsim.base.values import dataclass
from netsim.workloads.model import Mamba, Transformer
from netsim.workloads.setting import BLOCK, NARROW, Roofline, Setting


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """The product of a linear layer on one rank: `rows` tokens, `inputs` and `outputs` features.

    `batch` is the number of such products in one kernel (of experts, or of attention heads).
    """

    rows: int
    inputs: int
    outputs: int
    batch: int = 1

    @property
    def flops(self) -> float:
        """FLOPs of the forward product; each of the two backward products has the same number."""
        return 2.0 * self.rows * self.inputs * self.outputs * self.batch


def forward(
    roofline: Roofline, dtype: str, layers: Iterable[LinearLayer], pieces: int = 1
) -> float:
    """Return the seconds of the forward products of linear layers in the data type `dtype`; the
    rows of each product are divided among `pieces` kernels.
    """
    return sum(
        roofline.gemm_seconds(
            linear.rows // pieces, linear.outputs, linear.inputs, dtype, linear.batch * pieces
        )
        + (pieces - 1) * roofline.kernel
        for linear in layers
    )


def input_gradients(
    roofline: Roofline, dtype: str, layers: Iterable[LinearLayer], pieces: int = 1
) -> float:
    """Return the seconds of the products of linear layers that make gradients of inputs, in the
    data type `dtype`; each product is divided into `pieces` kernels.
    """
    transposed = (
        replace(linear, inputs=linear.outputs, outputs=linear.inputs) for linear in layers
    )
    return forward(roofline, dtype, transposed, pieces)


def weight_gradients(
    roofline: Roofline, dtype: str, layers: Iterable[LinearLayer], result: float | None = None
) -> float:
    """The seconds of the products that make gradients of weights.

    `result`: if the products add to gradients in memory instead of writing them in 16 bits, the
    bytes that this moves for each element.
    """
    return sum(
        roofline.gemm_seconds(
            linear.inputs, linear.outputs, linear.rows, dtype, linear.batch, result
        )
        for linear in layers
    )


# Kernels between products are measured in passes: a pass reads or writes each activation once.
# Fused kernels read their inputs and write their results once. Run op by op (`eager`), RMSNorm
# converts to fp32, squares, averages, scales, converts back and multiplies by its weight, each in a
# kernel of its own; rotary embeddings and SwiGLU likewise. LayerNorm and GELU are one kernel each
# in either case. Kernels that sum rows are slower than copies; their figures are the passes of a
# copy that takes as long (tests/bench/kernels.py on an H100).

RESIDUAL = 3  # passes of a sum: two inputs, one result


@dataclass(frozen=True)
class Elementwise:
    """By kind of kernel, how often it reads or writes its activations (passes), forward and
    backward.

    `gated` and `plain` are the functions between the two products of an MLP: SwiGLU, or GELU.
    """

    norm: float = 2
    norm_backward: float = 2
    rotary: float = 2
    gated: float = 3
    gated_backward: float = 6
    plain: float = 2
    plain_backward: float = 4


FUSED = Elementwise()
# Bytes for each feature that eager kernels move (2 bytes are one pass).
#
# RMSNorm: to fp32 6, square 8, mean 4, scale 8, from fp32 6, weight 4. That is 36, which take as
# long as 46 bytes of a copy. Backward: weight 12, conversion 6, scale and its sum 20, square 20,
# sum 12, conversion 6. That is 76, which take as long as 106. LayerNorm takes as long as 5.4 and
# 14.4 bytes.
#
# Rotary embeddings: two products, one half rotated (negate, join), sum.
#
# SwiGLU, in passes: product with the sigmoid 2, product 3; backward two products and the function,
# 3 each.
#
# PyTorch's own models rotate complex numbers, which no compiler fuses: to fp32, product, back.
EAGER = Elementwise(norm=23, norm_backward=53, rotary=10, gated=5, gated_backward=9)
COMPILED = Elementwise(rotary=10)
LAYER_NORM = Elementwise(norm=2.7, norm_backward=7.2)


def elementwise_of(setting: Setting, *, gated: bool) -> Elementwise:
    """Return how often element-wise kernels read or write their activations in a setting, by kind
    of kernel. Models with gated MLPs (`gated`) are taken to use RMSNorm, others LayerNorm.
    """
    if setting.elementwise == "fused":
        return COMPILED if setting.apart else FUSED
    return EAGER if gated else LAYER_NORM


# Bytes that move for each element when inputs of narrow products are cast from 16 bits, by how
# scales are found. An input is cast twice: for the product, and transposed for the gradient of
# weights. Each entry is (input made by a norm, which writes its output cast; other input, cast by
# a kernel that reads 2 bytes and writes twice 1 byte). If the scale follows from the tensor,
# another kernel first finds its largest element.

CASTS = {"delayed": (0.0, 4.0), "block": (0.0, 4.0), "row": (7.0, 10.3), "tensor": (5.8, 7.8)}
CAST_FP4 = (4.0, 8.0)  # Hadamard transform and largest element of the tensor first


def cast_bytes(setting: Setting, *, fused: bool = False) -> float:
    """The bytes that move when one element of a product's input is cast; 0 if products are not
    narrow.

    `fused`: whether a norm makes the input, and writes it cast.

    Where weights are frozen, the transposed copy is not written.
    """
    if not setting.narrow:
        return 0.0
    moved = (CAST_FP4 if setting.dtype == "nvfp4" else CASTS[setting.scaling])[not fused]
    if setting.adapters is None:
        return moved
    return max(0.0, moved - NARROW[setting.dtype])


def cast_seconds(setting: Setting, elements: float, *, fused: bool = False) -> float:
    """Return the seconds of casting `elements` elements of products' inputs. `fused`: whether a
    norm makes these inputs and writes them cast (see `cast_bytes`).
    """
    bytes_per_element = cast_bytes(setting, fused=fused)
    return setting.roofline.stream_seconds(elements * bytes_per_element, bytes_per_element > 0)


@dataclass(frozen=True)
class Shapes:
    """The sizes of the work of one rank on a transformer in one micro-batch."""

    model: Transformer
    setting: Setting

    @property
    def tp(self) -> int:
        """The number of ranks that share each matrix (degree of tensor parallelism)."""
        return self.setting.degree("tp")

    @property
    def cp(self) -> int:
        """The number of ranks that share each sequence (degree of context parallelism)."""
        return self.setting.degree("cp")

    @property
    def tokens(self) -> int:
        """The number of tokens of the micro-batch on this rank, after division by cp."""
        return self.setting.tokens

    @property
    def local(self) -> int:
        """The tokens of this rank outside of the regions that tensor parallelism divides: with
        sequence parallelism, a part of `tokens`.
        """
        return self.tokens // self.tp if self.setting.sequence_parallel else self.tokens

    @property
    def message(self) -> int:
        """The bytes of the activations of all `tokens` between blocks."""
        return self.tokens * self.model.hidden * self.setting.element

    @property
    def cast_message(self) -> int:
        """The bytes of the activations of all `tokens` between blocks, when they are gathered as
        inputs of products. Inputs of a narrow type are cast before they are gathered, so they have
        fewer bytes than `message`.
        """
        if self.setting.cast == self.setting.stored:
            return self.message
        return int(self.tokens * self.model.hidden * NARROW[self.setting.dtype])

    def width(self, passes: float, features: int, tokens: int) -> float:
        """The bytes that element-wise kernels move: `passes` times `features` activations of each
        token.
        """
        return passes * features * tokens * self.setting.element

    @cached_property
    def query_width(self) -> int:
        """The number of features of all queries of one token on this rank."""
        return self.model.heads * self.model.head // self.tp

    @cached_property
    def kv_width(self) -> int:
        """The number of features of all keys of one token on this rank."""
        if self.model.latent:
            return self.query_width
        return max(self.model.kv_width // self.tp, self.model.head)

    @cached_property
    def attention_in(self) -> tuple[LinearLayer, ...]:
        """The products before attention (query, key and value projections)."""
        m = self.model
        t = self.tokens
        latent = self.model.latent
        if latent is None:
            return self._products_of_hidden(self.query_width, self.kv_width, self.kv_width)
        heads = m.heads // self.tp
        return (
            LinearLayer(t, m.hidden, latent.q_rank + latent.kv_rank + latent.rope),
            LinearLayer(t, latent.q_rank, heads * (latent.nope + latent.rope)),
            LinearLayer(t, latent.kv_rank, heads * (latent.nope + latent.value)),
        )

    def _products_of_hidden(self, *outputs: int) -> tuple[LinearLayer, ...]:
        """The products of the hidden features with weights of `outputs` features each; one joined
        product unless the setting keeps them apart.
        """
        widths = outputs if self.setting.apart else (sum(outputs),)
        return tuple(LinearLayer(self.tokens, self.model.hidden, width) for width in widths)

    def gradient_sum_seconds(self, layers: Sequence[LinearLayer]) -> float:
        """The seconds of adding up the input gradients of several separate products with the same
        input.
        """
        more = (len(layers) - 1) * (self.setting.apart and self.model.latent is None)
        moved = self.width(RESIDUAL * more, self.model.hidden, self.tokens)
        return self.setting.roofline.stream_seconds(moved, more)

    @cached_property
    def attention_out(self) -> tuple[LinearLayer, ...]:
        """The shape of the product after attention (output projection)."""
        inputs = self.model.heads * self.head[1] // self.tp
        return (LinearLayer(self.tokens, inputs, self.model.hidden),)

    @property
    def repeated_kv_width(self) -> int:
        """The features of the keys of one token that the attention kernel reads. PyTorch's own
        models repeat keys that several heads share.
        """
        return self.query_width if self.setting.apart else self.kv_width

    @property
    def is_in_steps(self) -> bool:
        """Whether attention uses one kernel for the keys of each rank of cp, as a ring does.

        PyTorch's fsdp2 does so even if all keys are gathered.
        """
        s = self.setting
        return s.context == "p2p" or (s.context == "all_gather" and s.data == "fsdp2")

    @cached_property
    def keys(self) -> float:
        """The mean number of keys that a query meets in one kernel of attention."""
        kernels_per_query = self.cp if self.is_in_steps else 1
        return self.model.keys(self.setting.sequence, BLOCK) / kernels_per_query

    @property
    def head(self) -> tuple[int, int]:
        """The features of a key, and of a value, of one head."""
        latent = self.model.latent
        return (latent.nope + latent.rope, latent.value) if latent else (self.model.head,) * 2

    @property
    def attention_width(self) -> int:
        """The features of a key and a value of one head together."""
        return sum(self.head)

    @cached_property
    def attention_flops(self) -> float:
        """The forward FLOPs of attention on this rank: scores, and their product with values."""
        keys = self.model.keys(self.setting.sequence, BLOCK)
        return 2.0 * self.tokens * keys * self.attention_width * self.model.heads / self.tp

    @property
    def scores(self) -> tuple[LinearLayer, LinearLayer]:
        """The two products of attention kernels that store scores: queries with all keys, scores
        with all values.
        """
        heads = self.model.heads // self.tp * self.setting.micro
        (width, value) = self.head
        rows = self.tokens // self.setting.micro
        keys = self.setting.sequence
        return LinearLayer(rows, width, keys, heads), LinearLayer(rows, keys, value, heads)

    def mamba_products(self, mamba: Mamba) -> tuple[LinearLayer, LinearLayer]:
        """The first and the second product of a Mamba-2 layer."""
        m = self.model
        return (
            LinearLayer(self.tokens, m.hidden, mamba.projected // self.tp),
            LinearLayer(self.tokens, mamba.inner // self.tp, m.hidden),
        )

    @property
    def latent_products(self) -> tuple[LinearLayer, ...]:
        """The products that compress tokens before they are sent to experts, and expand them after
        it; none if tokens are not compressed. Tensor parallelism does not divide their matrices.
        """
        m = self.model
        if not m.expert_latent:
            return ()
        return (
            LinearLayer(self.local, m.hidden, m.expert_latent),
            LinearLayer(self.local, m.expert_latent, m.hidden),
        )

    def mlp_in(self, ffn: int) -> tuple[LinearLayer, ...]:
        """The first product of a dense MLP with `ffn` features inside."""
        return self._products_of_hidden(*[ffn // self.tp] * (2 if self.model.gated else 1))

    def mlp_out(self, ffn: int) -> tuple[LinearLayer, ...]:
        """The second product of a dense MLP with `ffn` features inside."""
        return (LinearLayer(self.tokens, ffn // self.tp, self.model.hidden),)

    @property
    def routed(self) -> int:
        """The tokens that this rank sends to experts; a token that goes to several experts counts
        several times.
        """
        return self.local * self.model.top_k

    @property
    def dispatched(self) -> int:
        """The bytes that the busiest rank sends to experts."""
        nbytes = self.routed * self.model.expert_width * self.setting.element * self._copies
        return int(nbytes * self.setting.imbalance)

    @property
    def _copies(self) -> float:
        """The copies of a token that are sent, divided by the number of experts that it goes to.

        With deduplication, one copy serves all experts of a rank; if there are experts outside of
        the GPUs that NVLink joins, one copy serves all experts of such a group of GPUs.
        """
        s = self.setting
        top_k = self.model.top_k
        targets = s.degree("ep")
        if not s.deduplicated:
            return 1.0
        if targets > (near := max(1, s.joined // (s.degree("tp") * s.degree("cp")))):
            targets = -(-targets // near)
        return targets * (1 - (1 - 1 / targets) ** top_k) / top_k

    @property
    def expert_split(self) -> int:
        """The number of ranks that share the matrices of each expert."""
        return self.tp if self.setting.expert_tensor else 1

    @cached_property
    def experts(self) -> tuple[tuple[LinearLayer, ...], tuple[LinearLayer, ...]]:
        """The first products, and the second products, of the experts on the busiest rank."""
        m = self.model
        split = self.expert_split
        here = max(1, m.experts // self.setting.degree("ep"))
        rows = max(1, int(self.routed * split * self.setting.imbalance) // here)
        width = (2 if m.gated else 1) * m.expert_ffn // split
        return (
            (LinearLayer(rows, m.expert_width, width, here),),
            (LinearLayer(rows, m.expert_ffn // split, m.expert_width, here),),
        )

    @property
    def logits(self) -> tuple[LinearLayer, ...]:
        """The product with the vocabulary."""
        vocabulary = -(-self.model.vocabulary // self.tp)
        return (LinearLayer(self.tokens * self.model.predicted, self.model.hidden, vocabulary),)


FP32 = 4
# By optimizer, the fp32 numbers of each parameter that it reads and writes: master copy, momentum,
# variance.
STATES = {"adam": 3, "adam-eager": 3, "sgd-momentum": 2, "sgd": 1}
# Bytes per parameter of Adam op by op in fp32, including clipping and the cast of weights: decay 8,
# moments 20 and 24, root and epsilon 16, quotient 16, clipping 12, cast 8.
EAGER_ADAM = 104


def state_bytes(optimizer: str) -> int:
    """The bytes of optimizer states of each parameter, including the fp32 copy of the weights."""
    return FP32 * STATES[optimizer]


def optimizer_seconds(setting: Setting, parameters: int) -> float:
    """The seconds of updating `parameters` parameters: read and write states, read gradients, write
    weights.
    """
    bytes_per_parameter = (
        2 * state_bytes(setting.optimizer) + setting.gradient_element + setting.element
    )
    if setting.optimizer == "adam-eager":
        bytes_per_parameter = EAGER_ADAM
    return setting.roofline.stream_seconds(float(bytes_per_parameter) * parameters)
