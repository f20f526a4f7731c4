"""GPUs that no preset has, so that hosts with them can be imported: figures of NVIDIA's datasheets.

Peaks are dense and in TFLOPS; SMs as the architecture whitepapers count them.
"""

from dataclasses import dataclass

from netsim.topology.machine import Gpu


@dataclass(frozen=True, slots=True)
class Model:
    """A GPU: bytes, bytes/s and TFLOPS by dtype; `p2p`: the driver lets peers reach its memory."""

    sm: int
    sms: int
    memory: int
    bandwidth: float
    flops: dict[str, float]
    p2p: bool = True

    def filled(self, name: str, like: Gpu) -> Gpu:
        """A machine's GPUs with these figures in place of their own."""
        flops = {dtype: rate * 1e12 for dtype, rate in self.flops.items()}
        figures = {"memory": self.memory * 10**9, "memory_bandwidth": self.bandwidth * 1e9}
        named = {"model": name, "arch": f"sm_{self.sm}", "sms": self.sms, "flops": flops}
        return like.model_copy(update=named | figures)


def _tensor(float32: float, half: float, **more: float) -> dict[str, float]:
    return {"float": float32, "half": half, "bfloat16": half, "tf32": half / 2, **more}


MODELS = {
    "P100 SXM2 16GB": Model(60, 56, 16, 732, {"double": 5.3, "float": 10.6, "half": 21.2}),
    "P100 PCIe 16GB": Model(60, 56, 16, 732, {"double": 4.7, "float": 9.3, "half": 18.7}),
    "V100 SXM2 32GB": Model(70, 80, 32, 900, {"double": 7.8, "float": 15.7, "half": 125}),
    "T4 16GB": Model(75, 40, 16, 320, {"float": 8.1, "half": 65, "int8": 130}),
    "A30 24GB": Model(80, 56, 24, 933, _tensor(10.3, 165, double=10.3, int8=330)),
    "A40 48GB": Model(86, 84, 48, 696, _tensor(37.4, 149.7, int8=299.3)),
    "RTX A6000 48GB": Model(86, 84, 48, 768, _tensor(38.7, 154.8, int8=309.7)),
    "GeForce RTX 3090 24GB": Model(86, 82, 24, 936, _tensor(35.6, 71, int8=284), p2p=False),
    "L4 24GB": Model(89, 58, 24, 300, _tensor(30.3, 121, fp8=242.5, int8=242.5)),
    "L40 48GB": Model(89, 142, 48, 864, _tensor(90.5, 181, fp8=362, int8=362)),
    "H100 PCIe 80GB": Model(90, 114, 80, 2000, _tensor(51, 756, double=51, fp8=1513, int8=1513)),
    "H100 NVL 94GB": Model(90, 132, 94, 3938, _tensor(60, 835, double=60, fp8=1670, int8=1670)),
    "H20 96GB": Model(90, 78, 96, 4000, _tensor(44, 148, double=1, fp8=296, int8=296)),
}
USUAL = {60: "P100 SXM2 16GB"}  # by compute capability, where no preset has it
