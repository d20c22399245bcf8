#!/usr/bin/env python3
"""Measures the bucket copies of bench_gpu_kernels with PyTorch, on the same tensors: bench_gpu_torch.py
BENCH_GPU_KERNELS.

Flattening and a copy of many tensors at a time (foreach) take turns with a plain copy. The median counts. Exits with 77
if there is no PyTorch or no GPU.
"""

import statistics
import subprocess
import sys

try:
    import torch
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    sys.exit(77)
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

ROUNDS, REPEATS = 21, 10


def microseconds(run) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(REPEATS):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1000 / REPEATS


def measure(model: str, counts: list[int]) -> None:
    tensors = [torch.zeros(count, device="cuda") for count in counts]
    bucket = torch.zeros(sum(counts), device="cuda")
    other = torch.zeros_like(bucket)
    views = _unflatten_dense_tensors(bucket, tensors)
    half = torch.zeros_like(bucket, dtype=torch.bfloat16)
    half_views = _unflatten_dense_tensors(half, [tensor.bfloat16() for tensor in tensors])
    ways = {
        "copy": (8, lambda: other.copy_(bucket)),
        "flatten": (8, lambda: _flatten_dense_tensors(tensors)),
        "foreach gather": (8, lambda: torch._foreach_copy_(views, tensors)),
        "foreach scatter": (8, lambda: torch._foreach_copy_(tensors, views)),
        "foreach gather bf16": (6, lambda: torch._foreach_copy_(half_views, tensors)),
        "foreach scatter bf16": (6, lambda: torch._foreach_copy_(tensors, half_views)),
    }
    times = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, (_, run) in ways.items():
            taken = microseconds(run)
            if turn:
                times[name].append(taken)
    for name, (moved_bytes, _) in ways.items():
        taken = statistics.median(times[name])
        print(f"{model:9} {name:22} {taken:9.1f} us {moved_bytes * bucket.numel() / taken / 1000:8.1f} GB/s")


print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; median of {ROUNDS} rounds")
for model in ("resnet50", "gpt2"):
    listed = subprocess.run([sys.argv[1], "--counts", model], check=True, capture_output=True, text=True).stdout
    measure(model, [int(line) for line in listed.split()])
