"""The shapes of a transformer on one rank: tokens, bytes of messages, matrix products, FLOPs."""

from dataclasses import dataclass
from functools import cached_property

from netsim.workloads.linear import Linear
from netsim.workloads.model import Transformer
from netsim.workloads.setting import Setting


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
    def handed_on(self) -> int:
        """Bytes that a pipeline stage hands to the next, on one rank."""
        return self.local * self.model.hidden * self.setting.element

    def width(self, passes: float, features: int, tokens: int) -> float:
        """Bytes that elementwise kernels move: `passes` over so many features of tokens."""
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
            return (Linear(t, m.hidden, self.query_width + 2 * self.kv_width),)
        heads = m.heads // self.tp
        return (
            Linear(t, m.hidden, latent.q_rank + latent.kv_rank + latent.rope),
            Linear(t, latent.q_rank, heads * (latent.nope + latent.rope)),
            Linear(t, latent.kv_rank, heads * (latent.nope + latent.value)),
        )

    @cached_property
    def attention_out(self) -> tuple[Linear, ...]:
        """The product after attention."""
        value = self.model.latent.value if self.model.latent else self.model.head
        return (Linear(self.tokens, self.model.heads * value // self.tp, self.model.hidden),)

    @cached_property
    def attention_flops(self) -> float:
        """FLOPs of scores and their use on this rank, forward."""
        m, latent = self.model, self.model.latent
        each = latent.nope + latent.rope + latent.value if latent else 2 * m.head
        pairs = float(self.tokens) * self.setting.sequence / (2 if m.causal else 1)
        return 2.0 * pairs * each * m.heads / self.tp

    @property
    def scores(self) -> tuple[Linear, Linear]:
        """The products with all keys and with all values, which kernels that store scores make."""
        m, heads = self.model, self.model.heads // self.tp * self.setting.micro
        rows, keys = self.tokens // self.setting.micro, self.setting.sequence
        value = m.latent.value if m.latent else m.head
        width = m.latent.nope + m.latent.rope if m.latent else m.head
        return Linear(rows, width, keys, heads), Linear(rows, keys, value, heads)

    def mlp_in(self, ffn: int) -> tuple[Linear, ...]:
        """The first product of a dense MLP."""
        width = (2 if self.model.gated else 1) * ffn // self.tp
        return (Linear(self.tokens, self.model.hidden, width),)

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
        nbytes = self.routed * self.model.hidden * self.setting.element
        return int(nbytes * self.setting.imbalance)

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
        return (Linear(self.tokens, self.model.hidden, vocabulary),)
