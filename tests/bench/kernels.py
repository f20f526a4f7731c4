"""Kernels of training steps on a GPU that is at hand: `python tests/bench/kernels.py -o gpu.csv`.

Needs PyTorch and a GPU, so nothing else imports it. Every row is the time from one kernel to the
next of a CUDA graph of them that is replayed until clocks have settled (0.25 s and more), on
normally distributed numbers, over as many sets of tensors as do not fit into L2 together.
"""

import argparse
import csv
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

COLUMNS = ("section", "kernel", "dtype", "m", "n", "k", "batch", "mbytes", "gflop", "us",
           "gbytes_per_s", "tflops", "mhz", "watts")  # fmt: skip
SETTLED = 0.25  # seconds after which power has pulled clocks down
COLD = 160 * 2**20  # bytes that no L2 holds
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
Kernel = Callable[[int], Any]


class Meter(threading.Thread):
    """Reads the SM clock and the power while kernels run."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        import pynvml  # of the machine with the GPU

        pynvml.nvmlInit()
        self.nvml, self.gpu = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        self.seen: list[tuple[int, float]] = []
        self.start()

    def run(self) -> None:
        """Every 20 ms, for good."""
        while True:
            clock = self.nvml.nvmlDeviceGetClockInfo(self.gpu, self.nvml.NVML_CLOCK_SM)
            self.seen.append((clock, self.nvml.nvmlDeviceGetPowerUsage(self.gpu) / 1e3))
            time.sleep(0.02)

    def last(self) -> tuple[int, float]:
        """The last reading."""
        return self.seen[-1] if self.seen else (0, 0.0)


class Table:
    """Rows as they are measured, into a file and onto the screen."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", newline="")
        self.writer = csv.DictWriter(self.file, COLUMNS, restval="")
        self.writer.writeheader()
        self.meter = Meter()

    def add(self, section: str, kernel: str, seconds: float, **about: Any) -> None:
        """One row; `nbytes` and `flop` of one kernel become its rates."""
        nbytes, flop = about.pop("nbytes", 0), about.pop("flop", 0)
        mhz, watts = self.meter.last()
        row = about | {
            "section": section,
            "kernel": kernel,
            "us": f"{seconds * 1e6:.3f}",
            "mhz": mhz,
            "watts": f"{watts:.0f}",
        }
        if nbytes:
            row |= {
                "mbytes": f"{nbytes / 1e6:.4f}",
                "gbytes_per_s": f"{nbytes / seconds / 1e9:.0f}",
            }
        if flop:
            row |= {"gflop": f"{flop / 1e9:.4f}", "tflops": f"{flop / seconds / 1e12:.1f}"}
        self.writer.writerow(row)
        self.file.flush()
        print(*(row.get(column, "") for column in COLUMNS))


def graph_of(kernel: Kernel, calls: int) -> torch.cuda.CUDAGraph:
    """So many calls of a kernel in one graph, after they were made once outside."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in range(3):
            kernel(call)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in range(calls):
            kernel(call)
    return graph


def seconds_of(run: Callable[[], Any], calls: int, settled: float = SETTLED) -> float:
    """Seconds of one of the calls in `run`, once clocks have settled."""
    began = time.perf_counter()
    while time.perf_counter() - began < settled:
        run()
        torch.cuda.synchronize()
    found = []
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / 1e3 / calls)
    return sorted(found)[2]


def timed(kernel: Kernel, calls: int = 20, settled: float = SETTLED) -> float:
    """Seconds from one call of a kernel to the next in a graph."""
    return seconds_of(graph_of(kernel, calls).replay, calls, settled)


def sets_of(make: Callable[[], Any], nbytes: float) -> list[Any]:
    """As many sets of tensors as L2 does not hold, two at least."""
    return [make() for _ in range(max(2, min(64, int(COLD / max(nbytes, 1)) + 1)))]


def normal(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Normally distributed numbers: zeros would draw less power."""
    made = torch.float32 if dtype == FP8 else dtype
    return torch.randn(*shape, device="cuda", dtype=made).to(dtype)


# Products: forward (activations by weights turned), gradients of inputs and of weights.


def shapes() -> Iterator[tuple[int, int, int]]:
    """Tokens, outputs and inputs of layers that people train; squares; waves and short K."""
    for tokens, (outputs, inputs) in itertools.product(
        (2048, 4096, 8192, 16384),
        (
            (6144, 4096),
            (4096, 4096),
            (28672, 4096),
            (4096, 14336),
            (1280, 8192),
            (8192, 1024),
            (7168, 8192),
            (8192, 3584),
            (4608, 12288),
            (12288, 6144),
            (2048, 2048),
            (8192, 2048),
            (1024, 1024),
            (3072, 768),
            (128256, 4096),
        ),
    ):
        if tokens * outputs <= 2**30:
            yield tokens, outputs, inputs
    for side in (256, 512, 1024, 2048, 4096, 8192, 16384):
        yield side, side, side
    for tokens in range(128, 4096, 384):
        yield tokens, 4096, 4096
    for inputs in (128, 256, 512, 1024, 2048, 8192, 32768):
        yield 8192, 8192, inputs


def product(table: Table, tokens: int, outputs: int, inputs: int) -> None:
    """One layer in bfloat16: forward, input gradient, weight gradient."""
    numbers = tokens * inputs + inputs * outputs + tokens * outputs
    sets = sets_of(
        lambda: (normal(tokens, inputs), normal(outputs, inputs), normal(tokens, outputs)),
        2 * numbers,
    )
    about = {"dtype": "bfloat16", "m": tokens, "n": outputs, "k": inputs, "batch": 1,
             "nbytes": 2 * numbers, "flop": 2 * tokens * outputs * inputs}  # fmt: skip
    kinds: dict[str, Kernel] = {
        "forward": lambda i: torch.mm(sets[i % len(sets)][0], sets[i % len(sets)][1].t()),
        "dgrad": lambda i: torch.mm(sets[i % len(sets)][2], sets[i % len(sets)][1]),
        "wgrad": lambda i: torch.mm(sets[i % len(sets)][2].t(), sets[i % len(sets)][0]),
    }
    for name, kernel in kinds.items():
        table.add("gemm", name, timed(kernel, settled=0.15), **about)


def narrow_product(table: Table, tokens: int, outputs: int, inputs: int) -> None:
    """The same in FP8, scales by tensor and by row, with fast and with exact accumulation."""
    numbers = tokens * inputs + inputs * outputs
    sets = sets_of(
        lambda: (normal(tokens, inputs, dtype=FP8), normal(outputs, inputs, dtype=FP8)), numbers
    )
    one = torch.ones((), device="cuda")
    rows = (torch.ones(tokens, 1, device="cuda"), torch.ones(1, outputs, device="cuda"))
    for name, scales, fast in (
        ("forward tensor", (one, one), False),
        ("forward tensor fast", (one, one), True),
        ("forward row fast", rows, True),
    ):

        def kernel(i: int, scales: Any = scales, fast: bool = fast) -> torch.Tensor:
            a, b = sets[i % len(sets)]
            return torch._scaled_mm(a, b.t(), *scales, out_dtype=BF16, use_fast_accum=fast)

        table.add(
            "gemm",
            name,
            timed(kernel, settled=0.15),
            dtype="fp8",
            m=tokens,
            n=outputs,
            k=inputs,
            batch=1,
            nbytes=numbers + 2 * tokens * outputs,
            flop=2 * tokens * outputs * inputs,
        )


def products(table: Table) -> None:
    """All products."""
    every = list(dict.fromkeys(shapes()))
    for shape in every:
        product(table, *shape)
    for shape in every:
        if min(shape) >= 1024 and shape[0] in {4096, 8192} and shape[1] < 2**16:
            narrow_product(table, *shape)
    for dtype, name in ((torch.float16, "half"), (torch.float32, "tf32")):
        torch.backends.cuda.matmul.allow_tf32 = True
        for tokens, outputs, inputs in (
            (4096, 4096, 4096),
            (8192, 8192, 8192),
            (8192, 4096, 14336),
        ):
            a, b = normal(tokens, inputs, dtype=dtype), normal(outputs, inputs, dtype=dtype)
            table.add(
                "gemm",
                "forward",
                timed(lambda i, a=a, b=b: torch.mm(a, b.t())),
                dtype=name,
                m=tokens,
                n=outputs,
                k=inputs,
                batch=1,
                flop=2 * tokens * outputs * inputs,
            )


def batched(table: Table) -> None:
    """Products of experts: as many at once as a rank has, in one grouped kernel, and batches."""
    for experts, rows, (inputs, outputs) in itertools.product(
        (4, 8, 16, 32, 64), (64, 256, 1024, 4096), ((2048, 1536), (4096, 3072), (7168, 4096))
    ):
        if experts * rows > 65536 or experts * inputs * outputs > 2**31:
            continue
        a = normal(experts * rows, inputs)
        b = normal(experts, inputs, outputs)
        ends = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * rows
        about = {"dtype": "bfloat16", "m": rows, "n": outputs, "k": inputs, "batch": experts,
                 "nbytes": 2 * experts * (rows * inputs + inputs * outputs + rows * outputs),
                 "flop": 2 * experts * rows * inputs * outputs}  # fmt: skip
        table.add(
            "gemm",
            "grouped",
            timed(lambda i, a=a, b=b, e=ends: torch._grouped_mm(a, b, e), settled=0.1),
            **about,
        )
        c = a.view(experts, rows, inputs)
        table.add(
            "gemm", "batched", timed(lambda i, c=c, b=b: torch.bmm(c, b), settled=0.1), **about
        )


# Attention: fused kernels by sequence and size of a head, 16,384 tokens in all.


def attention(table: Table) -> None:
    """Forward and backward, FlashAttention-2 and cuDNN."""
    backends = {"flash2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    for (name, backend), head, sequence, causal in itertools.product(
        backends.items(), (64, 128), (512, 1024, 2048, 4096, 8192, 16384, 32768), (True, False)
    ):
        if not causal and (head == 64 or sequence > 8192):
            continue
        batch, heads = max(1, 16384 // sequence), 2048 // head
        made = [normal(batch, heads, sequence, head) for _ in range(4)]
        q, k, v = (one.requires_grad_() for one in made[:3])
        flop = 4 * batch * heads * sequence**2 * head * (0.5 if causal else 1)
        about = {"dtype": "bfloat16", "m": sequence, "n": head, "k": heads, "batch": batch}
        kind = f"{name}{' causal' if causal else ''}"
        try:
            with sdpa_kernel(backend):
                forward = timed(
                    lambda i, q=q, k=k, v=v, c=causal: functional.scaled_dot_product_attention(
                        q, k, v, is_causal=c
                    ),
                    5,
                )
                both = timed(
                    lambda i, g=made[3], of=(q, k, v), c=causal: torch.autograd.grad(
                        functional.scaled_dot_product_attention(*of, is_causal=c), of, g
                    ),
                    5,
                )
        except RuntimeError as error:
            print(kind, head, sequence, str(error).splitlines()[0])
            continue
        table.add("attention", kind, forward, flop=flop, **about)
        table.add("attention", f"{kind} backward", both - forward, flop=2.5 * flop, **about)


# Kernels that move bytes: what they reach of the memory, with the bytes that the model counts.


def streams(table: Table) -> None:
    """Copies, sums and reductions by size."""
    for power in range(16, 33, 2):
        count = 2**power // 2
        sets = sets_of(lambda n=count: (normal(n), normal(n), normal(n)), 6 * count)
        kinds: dict[str, tuple[int, Kernel]] = {
            "copy": (4, lambda i, s=sets: s[i % len(s)][0].copy_(s[i % len(s)][1])),
            "add": (6, lambda i, s=sets: torch.add(*s[i % len(s)][:2], out=s[i % len(s)][2])),
            "fill": (2, lambda i, s=sets: s[i % len(s)][0].fill_(1.5)),
            "sum": (2, lambda i, s=sets: s[i % len(s)][0].sum()),
        }
        for name, (each, kernel) in kinds.items():
            table.add(
                "memory", name, timed(kernel, settled=0.1), dtype="bfloat16", nbytes=each * count
            )


def layers(table: Table) -> None:
    """What lies between products, 16,384 tokens of 4,096 features, op by op and compiled."""
    tokens, hidden, ffn = 16384, 4096, 14336
    x, y, weight = normal(tokens, hidden), normal(tokens, hidden), normal(hidden)
    gate, up = normal(tokens, ffn), normal(tokens, ffn)
    size = x.numel()

    def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * weight

    def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return functional.silu(gate) * up

    kinds: dict[str, tuple[float, Kernel]] = {
        "rmsnorm eager": (36 * size, lambda i: rms(x, weight)),
        "swiglu eager": (10 * gate.numel(), lambda i: swiglu(gate, up)),
        "layernorm": (4 * size, lambda i: functional.layer_norm(x, (hidden,), weight)),
        "gelu": (4 * gate.numel(), lambda i: functional.gelu(gate)),
        "dropout": (5 * size, lambda i: functional.dropout(x, 0.1)),
        "residual": (6 * size, lambda i: x + y),
        "softmax": (4 * size, lambda i: functional.softmax(x, -1)),
        "to float": (6 * size, lambda i: x.float()),
        "largest": (2 * size, lambda i: x.abs().amax()),
        "cast fp8": (3 * size, lambda i: x.to(FP8)),
    }
    for name, (nbytes, kernel) in kinds.items():
        table.add(
            "layer",
            name,
            timed(kernel, 5),
            dtype="bfloat16",
            m=tokens,
            n=hidden,
            nbytes=int(nbytes),
        )
    for name, made, inputs, each in (
        ("rmsnorm", rms, (x, weight), 4 * size),
        ("swiglu", swiglu, (gate, up), 6 * gate.numel()),
    ):
        compiled = torch.compile(made)
        compiled(*inputs)
        table.add(
            "layer",
            f"{name} compiled",
            timed(lambda i, f=compiled, a=inputs: f(*a), 5),
            dtype="bfloat16",
            m=tokens,
            n=hidden,
            nbytes=each,
        )
    backward_layers(table, rms, swiglu)
    moved_rows(table)


def backward_layers(table: Table, rms: Kernel, swiglu: Kernel) -> None:
    """Gradients of the same, op by op as autograd runs them, and of the loss."""
    tokens, hidden, ffn = 16384, 4096, 14336
    wide = [normal(tokens, ffn).requires_grad_() for _ in range(2)]
    x, weight = normal(tokens, hidden).requires_grad_(), normal(hidden).requires_grad_()
    bias = normal(hidden).requires_grad_()
    logits = normal(4096, 32000).requires_grad_()
    target = torch.randint(0, 32000, (4096,), device="cuda")
    made: dict[str, tuple[float, Kernel, Sequence[torch.Tensor]]] = {
        "rmsnorm eager": (76 * x.numel(), lambda i: rms(x, weight), (x, weight)),
        "swiglu eager": (18 * wide[0].numel(), lambda i: swiglu(*wide), wide),
        "layernorm": (
            6 * x.numel(),
            lambda i: functional.layer_norm(x, (hidden,), weight, bias),
            (x, weight, bias),
        ),
        "gelu": (6 * wide[0].numel(), lambda i: functional.gelu(wide[0]), wide[:1]),
        "loss eager": (
            22 * logits.numel(),
            lambda i: functional.cross_entropy(logits.float(), target),
            (logits,),
        ),
    }
    for name, (nbytes, forward, inputs) in made.items():
        given = torch.ones_like(forward(0))

        def run(i: int, forward: Any = forward, inputs: Any = inputs, given: Any = given) -> None:
            torch.autograd.grad(forward(i), inputs, given)

        table.add(
            "layer",
            f"{name} backward",
            timed(run, 5) - timed(forward, 5),
            dtype="bfloat16",
            nbytes=int(nbytes),
        )
    run_loss = lambda i: functional.cross_entropy(logits.float(), target)  # noqa: E731
    table.add(
        "layer", "loss eager", timed(run_loss, 5), dtype="bfloat16", nbytes=18 * logits.numel()
    )


def moved_rows(table: Table) -> None:
    """Rows of tokens by index, as they are routed to experts, tables of embeddings, optimizers."""
    for hidden, tokens in itertools.product((2048, 4096, 7168), (4096, 16384)):
        x = normal(tokens, hidden)
        order = torch.randperm(8 * tokens, device="cuda") % tokens
        out, back = normal(8 * tokens, hidden), normal(tokens, hidden)
        gather: Kernel = lambda i, x=x, o=order, d=out: torch.index_select(x, 0, o, out=d)  # noqa: E731
        scatter: Kernel = lambda i, b=back, o=order, s=out: b.index_add_(0, o, s)  # noqa: E731
        about = {"dtype": "bfloat16", "m": tokens, "n": hidden, "k": 8}
        table.add("rows", "gather", timed(gather, 5), nbytes=32 * x.numel(), **about)
        table.add("rows", "scatter", timed(scatter, 5), nbytes=32 * x.numel(), **about)
    for name, options in (("adam fused", {"fused": True}), ("adam foreach", {"foreach": True})):
        weights = [torch.nn.Parameter(normal(4096, 4096, dtype=torch.float32)) for _ in range(16)]
        for one in weights:
            one.grad = torch.randn_like(one)
        optimizer = torch.optim.AdamW(weights, lr=1e-4, **options)
        count = sum(one.numel() for one in weights)
        table.add(
            "optimizer",
            name,
            seconds_of(optimizer.step, 1),
            dtype="float",
            m=count,
            nbytes=28 * count,
        )


# Launches: the host's time for a kernel, the time from one kernel to the next; SMs held by others.


HOLD = r"""
extern "C" __global__ void hold(volatile int* stop, float4* to, const float4* from, long count) {
  extern __shared__ float4 held[];
  long step = (long)gridDim.x * blockDim.x, i = (long)blockIdx.x * blockDim.x + threadIdx.x;
  while (!*stop) {
    if (count == 0) { __nanosleep(1000); continue; }
    for (int turn = 0; turn < 64; turn++) {
      to[i] = from[i];
      i += step;
      if (i >= count) i -= count;
    }
  }
}
extern "C" __global__ void nothing(int) {}
"""


def launches(table: Table) -> None:
    """Small kernels from the host, in a stream that is never empty, and in a graph."""
    import cupy  # of the machine with the GPU

    one = torch.zeros(1, device="cuda")
    eager = seconds_by_host(lambda: one.add_(1.0), 20000)
    table.add("launch", "host, eager op", eager)
    linear, x = torch.nn.Linear(64, 64, device="cuda", dtype=BF16), normal(64, 64)
    table.add("launch", "host, nn.Linear without autograd", no_grad(lambda: linear(x), 5000))
    table.add("launch", "host, nn.Linear with autograd", seconds_by_host(lambda: linear(x), 5000))
    module = cupy.RawModule(code=HOLD)
    nothing = module.get_function("nothing")
    for blocks, threads in ((1, 32), (8, 640), (24, 640), (132, 1024)):
        graph = cupy_graph(cupy, lambda b=blocks, t=threads: nothing((b,), (t,), (0,)), 200)
        table.add(
            "launch", "graph, empty kernel to the next", seconds_of(graph, 200), m=blocks, n=threads
        )
        table.add(
            "launch",
            "stream, empty kernel to the next",
            behind_a_wait(lambda b=blocks, t=threads: nothing((b,), (t,), (0,)), 900),
            m=blocks,
            n=threads,
        )


def seconds_by_host(call: Callable[[], Any], calls: int) -> float:
    """Seconds of the host for a call, the GPU far faster."""
    for _ in range(100):
        call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / calls


def no_grad(call: Callable[[], Any], calls: int) -> float:
    """The same without autograd."""
    with torch.no_grad():
        return seconds_by_host(call, calls)


def cupy_graph(cupy: Any, call: Callable[[], Any], calls: int) -> Callable[[], Any]:
    """A graph of launches of cupy's on the stream that PyTorch times."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        call()
        stream.begin_capture()
        for _ in range(calls):
            call()
        graph = stream.end_capture()
    current = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    return lambda: graph.launch(stream=current)


def behind_a_wait(call: Callable[[], Any], calls: int) -> float:
    """Seconds from kernel to kernel where the host has launched all before the first may run."""
    import cupy  # of the machine with the GPU

    current = torch.cuda.current_stream()
    found = []
    for _ in range(5):
        torch.cuda._sleep(40_000_000)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        with cupy.cuda.ExternalStream(current.cuda_stream):
            for _ in range(calls):
                call()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / 1e3 / calls)
    return sorted(found)[2]


def contention(table: Table) -> None:
    """Products, attention and streams beside blocks that hold SMs, or hold them and copy."""
    import cupy  # of the machine with the GPU

    hold = cupy.RawModule(code=HOLD).get_function("hold")
    hold.max_dynamic_shared_size_bytes = 200 * 1024
    stop = cupy.zeros(1, dtype="int32")
    stop.fill(1)  # loads the kernel that ends the others: nothing is loaded while they run
    source, target = (cupy.zeros(2**28, dtype="float32") for _ in range(2))
    side, free = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    a, b, big = normal(8192, 8192), normal(8192, 8192), normal(2**29)
    q = normal(4, 16, 4096, 128)
    beside: dict[str, tuple[Callable[[], Any], int, float, float]] = {
        "gemm": (lambda: torch.mm(a, b.t()), 20, 2 * 8192**3, 0),
        "small gemm": (
            lambda: torch.mm(a[:2048, :4096], b[:4096, :4096].t()),
            100,
            2 * 2048 * 4096 * 4096,
            0,
        ),
        "attention": (
            lambda: functional.scaled_dot_product_attention(q, q, q, is_causal=True),
            20,
            2 * 64 * 4096**2 * 128,
            0,
        ),
        "add": (lambda: torch.add(big, 1.0, out=big), 10, 0, 4 * 2**29),
    }
    for blocks, shared, count in itertools.product(
        (0, 1, 2, 4, 8, 16, 24, 32), (100 * 1024,), (0, 2**26)
    ):
        if blocks:
            stop.fill(0)
            cupy.cuda.Device().synchronize()
            with side:
                hold((blocks,), (640,), (stop, target, source, count), shared_mem=shared)
        for name, (call, calls, flop, nbytes) in beside.items():
            table.add(
                "beside",
                f"{name} beside {'copies' if count else 'idle blocks'}",
                unsynchronised(call, calls),
                m=blocks,
                flop=flop,
                nbytes=nbytes,
            )
        if blocks:
            with free:
                stop.fill(1)
            cupy.cuda.Device().synchronize()


OWN = torch.cuda.Stream()  # one for all, so that nothing is allocated while blocks are held


def unsynchronised(call: Callable[[], Any], calls: int) -> float:
    """Seconds of a call while a kernel runs that never ends: only events are waited for."""
    found = []
    with torch.cuda.stream(OWN):
        for _ in range(6):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) / 1e3 / calls)
    return sorted(found[2:])[1]


# What parallelism and narrow types add: products in parts, casts with scales, waits of the host.


def parts(table: Table) -> None:
    """Products whose rows come in parts, one after the other on one stream and on two in turn."""
    side = torch.cuda.Stream()
    for tokens, inputs, outputs, count in (
        (98304, 4096, 3584, 8),
        (98304, 4096, 1792, 8),
        (98304, 4096, 768, 8),
        (98304, 1792, 4096, 8),
        (98304, 512, 4096, 8),
        (16384, 4096, 3584, 8),
        (2048, 12288, 9216, 4),
        (2048, 12288, 12288, 4),
        (2048, 12288, 3072, 4),
        (2048, 3072, 12288, 4),
        (4096, 12288, 9216, 4),
        (4096, 12288, 12288, 4),
    ):
        for dtype in (BF16, FP8):
            sets = sets_of(
                lambda t=tokens, i=inputs, o=outputs, d=dtype: (
                    normal(t, i, dtype=d),
                    normal(o, i, dtype=d),
                    normal(t, o),
                ),
                2 * tokens * (inputs + outputs),
            )
            about = {
                "dtype": "fp8" if dtype == FP8 else "bfloat16",
                "m": tokens,
                "n": outputs,
                "k": inputs,
                "flop": 2 * tokens * outputs * inputs,
            }

            def whole(i: int, sets: Any = sets) -> None:
                product_into(*sets[i % len(sets)])

            def in_turn(i: int, sets: Any = sets, count: int = count) -> None:
                a, b, c = sets[i % len(sets)]
                for x, y in zip(a.chunk(count), c.chunk(count), strict=True):
                    product_into(x, b, y)

            def on_two(i: int, sets: Any = sets, count: int = count) -> None:
                a, b, c = sets[i % len(sets)]
                here = torch.cuda.current_stream()
                side.wait_stream(here)
                for n, (x, y) in enumerate(zip(a.chunk(count), c.chunk(count), strict=True)):
                    with torch.cuda.stream(side if n % 2 else here):
                        product_into(x, b, y)
                here.wait_stream(side)

            table.add("parts", "whole", timed(whole, 6, 0.1), batch=1, **about)
            table.add("parts", "one stream", timed(in_turn, 6, 0.1), batch=count, **about)
            table.add("parts", "two streams", timed(on_two, 6, 0.1), batch=count, **about)


ONE = torch.ones((), device="cuda")


def product_into(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """Rows by weights turned, in bfloat16 or FP8 with exact sums."""
    if a.dtype == FP8:
        torch._scaled_mm(a, b.t(), ONE, ONE, out_dtype=BF16, out=c)
    else:
        torch.mm(a, b.t(), out=c)


def casts(table: Table) -> None:
    """What compiled code does to inputs of narrow products: scales of a tensor and of rows, as it
    lies and turned; products with few outputs apart and together; sums of their gradients."""

    def by_tensor(x: torch.Tensor) -> Any:
        scale = 448.0 / x.abs().amax().float().clamp(min=1e-12)
        return (x.float() * scale).clamp(-448, 448).to(FP8), scale

    def turned(x: torch.Tensor) -> Any:
        made, scale = by_tensor(x)
        return made.t().contiguous(), scale

    def both(x: torch.Tensor) -> Any:
        made, scale = by_tensor(x)
        return made, made.t().contiguous(), scale

    def by_row(x: torch.Tensor) -> Any:
        scale = 448.0 / x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12)
        return (x.float() * scale).clamp(-448, 448).to(FP8), scale

    def rows_and_columns(x: torch.Tensor) -> Any:
        return *by_row(x), *by_row(x.t().contiguous())

    def turn(x: torch.Tensor) -> Any:
        return x.t().contiguous()

    for tokens, hidden in ((16384, 4096), (98304, 4096), (98304, 1792), (16384, 14336)):
        sets = sets_of(lambda t=tokens, h=hidden: normal(t, h), 2 * tokens * hidden)
        narrow = [one.to(FP8) for one in sets[:2]]
        for name, made, each in (
            ("tensor", by_tensor, 5),
            ("tensor turned", turned, 5),
            ("tensor both", both, 6),
            ("row", by_row, 3),
            ("row both", rows_and_columns, 8),
        ):
            torch._dynamo.reset()
            run = torch.compile(made, dynamic=False)
            run(sets[0])
            table.add(
                "cast",
                name,
                timed(lambda i, r=run, s=sets: r(s[i % len(s)]), 5),
                dtype="fp8",
                m=tokens,
                n=hidden,
                nbytes=each * tokens * hidden,
            )
        torch._dynamo.reset()
        run = torch.compile(turn, dynamic=False)
        run(narrow[0])
        table.add(
            "cast",
            "turn",
            timed(lambda i, r=run, s=narrow: r(s[i % len(s)]), 5),
            dtype="fp8",
            m=tokens,
            n=hidden,
            nbytes=2 * tokens * hidden,
        )
        table.add(
            "cast",
            "turn eager",
            timed(lambda i, s=narrow: s[i % 2].t().contiguous(), 5),
            dtype="fp8",
            m=tokens,
            n=hidden,
            nbytes=2 * tokens * hidden,
        )
    for tokens, hidden, widths in (
        (98304, 4096, (512, 128, 128)),
        (98304, 4096, (1792, 1792)),
        (16384, 4096, (4096, 1024, 1024)),
    ):
        apart(table, tokens, hidden, widths)


def apart(table: Table, tokens: int, hidden: int, widths: Sequence[int]) -> None:
    """Products of one input with several weights, and their gradients, which add up."""
    x, weights = normal(tokens, hidden), [normal(one, hidden) for one in widths]
    grads, all_ = [normal(tokens, one) for one in widths], normal(sum(widths), hidden)
    joined = torch.cat(grads, 1)
    about = {"dtype": "bfloat16", "m": tokens, "n": sum(widths), "k": hidden, "batch": len(widths),
             "flop": 2 * tokens * sum(widths) * hidden}  # fmt: skip
    kinds: dict[str, Kernel] = {
        "together forward": lambda i: torch.mm(x, all_.t()),
        "apart forward": lambda i: [torch.mm(x, one.t()) for one in weights],
        "together dgrad": lambda i: torch.mm(joined, all_),
        "apart dgrad": lambda i: sum_of(
            torch.mm(g, w) for g, w in zip(grads, weights, strict=True)
        ),
        "together wgrad": lambda i: torch.mm(joined.t(), x),
        "apart wgrad": lambda i: [torch.mm(g.t(), x) for g in grads],
    }
    for name, kernel in kinds.items():
        table.add("apart", name, timed(kernel, 5), **about)


def sum_of(some: Iterator[torch.Tensor]) -> torch.Tensor:
    """One after the other, as autograd adds gradients up."""
    return functools.reduce(torch.add, some)


def waits(table: Table) -> None:
    """The host waits for a few numbers of the GPU and launches again; attention in turns."""
    counts, busy = torch.arange(64, device="cuda"), normal(4096, 4096)
    pinned = torch.empty(64, dtype=torch.int64, pin_memory=True)

    def synced() -> None:
        pinned.copy_(counts, non_blocking=True)
        torch.cuda.current_stream().synchronize()

    table.add(
        "wait", "host, numbers to pinned memory, stream synchronised", seconds_by_host(synced, 2000)
    )
    table.add("wait", "host, tolist", seconds_by_host(counts.tolist, 2000))
    table.add("wait", "products alone", seconds_by_host(lambda: torch.mm(busy, busy), 500))
    table.add(
        "wait",
        "products with numbers to the host between",
        seconds_by_host(lambda: (torch.mm(busy, busy), synced()), 500),
    )
    turns(table)


def turns(table: Table) -> None:
    """Attention of 32,768 rows in a ring that balances: own keys, half of the keys of an earlier
    rank, half of the rows with keys of a later one; and adding a turn's result to the others'."""
    q, k, v, g = (normal(1, 32, 32768, 128) for _ in range(4))
    half = slice(16384, None)
    kinds: dict[str, tuple[Any, ...]] = {
        "own": (q, k, v, g, True), "early": (q, k[:, :, :16384], v[:, :, :16384], g, False),
        "late": (q[:, :, half], k, v, g[:, :, half], False),
    }  # fmt: skip
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for name, (*given, d, causal) in kinds.items():
            a, b, c = (one.clone().requires_grad_() for one in given)
            run = lambda i, a=a, b=b, c=c, s=causal: functional.scaled_dot_product_attention(  # noqa: E731
                a, b, c, is_causal=s
            )
            flop = 4 * 32 * a.shape[2] * b.shape[2] * 128 * (0.5 if causal else 1)
            ahead = timed(run, 3)
            both = timed(lambda i, r=run, of=(a, b, c), d=d: torch.autograd.grad(r(0), of, d), 3)
            about = {"m": a.shape[2], "n": 128, "k": 32, "batch": b.shape[2]}
            table.add("turn", name, ahead, flop=flop, **about)
            table.add("turn", f"{name} backward", both - ahead, flop=2.5 * flop, **about)
    out, new = (normal(1, 32768, 32, 128, dtype=torch.float32) for _ in range(2))
    first, second = (torch.rand(1, 32768, 32, 1, device="cuda") for _ in range(2))

    def joined(i: int) -> Any:
        return out - functional.sigmoid(second - first) * (out - new.to(BF16).float())

    table.add("turn", "joined", timed(joined, 3), m=32768, n=4096, nbytes=12 * out.numel())


SECTIONS = {"launch": launches, "memory": streams, "layer": layers, "attention": attention,
            "gemm": products, "beside": contention, "batched": batched, "parts": parts,
            "cast": casts, "wait": waits}  # fmt: skip


def main() -> None:
    """All sections, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("kernels.csv"))
    parser.add_argument("sections", nargs="*", default=list(SECTIONS))
    options = parser.parse_args()
    properties = torch.cuda.get_device_properties(0)
    print(properties, torch.__version__, torch.version.cuda, torch.backends.cudnn.version())
    table = Table(options.output)
    for name in options.sections or SECTIONS:
        began = time.perf_counter()
        try:
            SECTIONS[name](table)
        except Exception as error:  # the others are worth their time
            print(f"{name}: {type(error).__name__}: {error}")
        print(f"{name}: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
