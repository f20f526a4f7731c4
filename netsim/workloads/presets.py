"""Published models by name; the parameters that follow are held to the published counts by tests.

Figures are those of the models' papers and configuration files.
"""

from netsim.errors import InputError, suggest
from netsim.workloads.convolution import resnet50
from netsim.workloads.model import Latent, Model, Transformer

_TRANSFORMERS = (
    Transformer(  # Brown et al. 2020, table 2.1
        name="gpt3-175b", layers=96, hidden=12288, heads=96, kv_heads=96, ffn=49152,
        vocabulary=50257, sequence=2048, gated=False, biases=True, norm_biases=True, tied=True,
        positions=2048,
    ),
    Transformer(  # Llama 3 herd of models, 2024, table 3
        name="llama3-8b", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336,
        vocabulary=128256, sequence=8192,
    ),
    Transformer(  # as above
        name="llama3-70b", layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672,
        vocabulary=128256, sequence=8192,
    ),
    Transformer(  # as above
        name="llama3-405b", layers=126, hidden=16384, heads=128, kv_heads=8, ffn=53248,
        vocabulary=128256, sequence=8192,
    ),
    Transformer(  # Jiang et al. 2024, table 1
        name="mixtral-8x7b", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336,
        vocabulary=32000, sequence=4096, experts=8, top_k=2, expert_ffn=14336,
    ),
    Transformer(  # DeepSeek-V3 technical report, 2024, §4.2 (without its multi-token prediction)
        name="deepseek-v3", layers=61, hidden=7168, heads=128, kv_heads=128, ffn=18432,
        vocabulary=129280, sequence=4096, head_size=192, experts=256, top_k=8, expert_ffn=2048,
        shared_ffn=2048, dense_layers=3, latent=Latent(1536, 512, 128, 64, 128),
    ),
    Transformer(  # Qwen3 technical report, 2025, table 2
        name="qwen3-30b-a3b", layers=48, hidden=2048, heads=32, kv_heads=4, ffn=6144,
        vocabulary=151936, sequence=4096, head_size=128, qk_norm=True, experts=128, top_k=8,
        expert_ffn=768,
    ),
    Transformer(  # Devlin et al. 2019, §3
        name="bert-base", layers=12, hidden=768, heads=12, kv_heads=12, ffn=3072,
        vocabulary=30522, sequence=512, gated=False, biases=True, norm_biases=True, tied=True,
        positions=512, segments=2, pooler=True, causal=False,
    ),
)  # fmt: skip

MODELS: dict[str, Model] = {model.name: model for model in _TRANSFORMERS}
MODELS["resnet-50"] = resnet50()


def model_named(name: str) -> Model:
    """A published model."""
    if name not in MODELS:
        known = ", ".join(MODELS)
        raise InputError(f"expected a model ({known}), got {name!r}{suggest(name, MODELS)}")
    return MODELS[name]
