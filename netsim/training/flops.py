"""The FLOPs that a step of a model needs, however it is run: what MFU is measured against."""

from netsim.workloads.model import Layer, Model, Transformer, layers_of


def model_flops(model: Model, batch: int, sequence: int) -> float:
    """FLOPs of forward and backward for a batch, without recomputation."""
    if not isinstance(model, Transformer):
        return batch * sum(one.plain.flops + one.plain.backward_flops for one in model.layers)
    each = sum(layer_flops(model, layer, sequence) for layer in layers_of(model))
    return 3.0 * each * batch * sequence


def layer_flops(model: Transformer, layer: Layer, sequence: int) -> float:
    """FLOPs of the forward pass of one layer for one token.

    Two for each parameter that a token passes through (of the embedding it only reads a row), and
    those of attention, halved where it is causal.
    """
    if layer.kind == "embedding":
        return 0.0
    active = layer.parameters - layer.expert_parameters
    active += layer.expert_parameters * model.top_k // max(model.experts, 1)
    if layer.kind == "head":
        return 2.0 * (active + (model.vocabulary * model.hidden if model.tied else 0))
    latent = model.latent
    head = latent.nope + latent.rope + latent.value if latent else 2 * model.head
    attention = 2.0 * sequence * head * model.heads / (2 if model.causal else 1)
    return 2.0 * active + attention
