"""The steps of run.py in their order. The most important ones come first, because the time may run out."""

import dataclasses
from typing import List

SUITE = ["collectives", "messages", "lengths", "operation_groups", "mixed", "async", "groups", "abort", "recovery", "late"]
TARGETS = (
    [f"tests/ranks/test_ranks_{name}" for name in SUITE]
    + [f"tests/gpu/test_gpu_{name}" for name in ("adopt", "calls", "experts", "faults", "reducer", "reference")]
    + ["tests/unit/test_device_kernels", "tests/unit/test_device_rows", "bench/bench_gpu_calls", "examples/13_device"]
)
WITH_NVCC = ["bench/bench_gpu_kernels"]
FAKES = ["tests/support/fake_gpu/libfake_cuda.so", "tests/support/fake_gpu/libfake_nccl_whole.so"]


@dataclasses.dataclass
class Step:
    name: str
    what: str
    seconds: int  # time limit
    command: List[str]  # {build}, {source}, {torch_python}, {sanitizer} and {jobs} are replaced
    beside: bool = False  # may run at the same time as other such steps
    needs: str = ""  # several of nvcc, nccl, card, sanitizer, torch_python
    processes: bool = False  # ranks are processes, independent of the number of GPUs
    driver: bool = False  # DSC_CUDA_LIBRARY names the real driver, because this test would otherwise use a fake one
    expects: str = ""  # a text that the output must contain


def test(name: str, seconds: int, needs: str = "nccl", **more) -> Step:
    program = f"gpu/test_{name}" if name.startswith("gpu_") else f"ranks/test_ranks_{name}"
    return Step(name, "a test of the suite", seconds, ["{build}/tests/" + program], needs=needs, **more)


def checked(tool: str, name: str, program: str, **more) -> Step:
    # NCCL's kernels are not checked: they are not part of this project, and would take minutes to start.
    ours = ["--kernel-regex", "kns=dsc_"]
    command = ["{sanitizer}", "--tool", tool, *ours, "--target-processes", "all", "--error-exitcode", "9", program]
    return Step(f"{tool}_{name}", f"{program.rsplit('/', 1)[-1]} under compute-sanitizer", 90, command, **more)


def all_steps() -> List[Step]:
    kernels = "{build}/tests/unit/test_device_kernels"
    calls = "{build}/bench/bench_gpu_calls"
    on_kernels = {"needs": "sanitizer nvcc", "driver": True}
    return [
        Step("configure", "meson setup", 60, ["{meson}", "setup", "{build}", "{source}", "{options}"]),
        Step("build", "the library, tests and benchmarks", 300, ["{ninja}", "-C", "{build}", "-j", "{jobs}", "{targets}"]),
        Step("kernels", "the library's kernels, bit for bit", 60, [kernels], needs="nvcc", driver=True),
        Step("rows", "the kernels of rows, bit for bit", 60, ["{build}/tests/unit/test_device_rows"], needs="nvcc", driver=True),
        test("gpu_calls", 60),
        test("gpu_adopt", 60),
        test("gpu_faults", 120, processes=True),
        test("gpu_reducer", 180, needs="nccl nvcc"),
        test("gpu_experts", 60, needs="nccl nvcc"),
        test("gpu_reference", 150),
        Step("bench_calls", "host time of a call, one rank", 40, [calls], needs="nccl"),
        # There are few calls, because ranks that share a GPU take turns on it.
        Step("bench_calls_2", "the same, two ranks", 60, [calls, "--ranks", "2", "--rounds", "9", "--calls", "10"], needs="nccl"),
        Step("bench_kernels", "bucket copies", 60, ["{build}/bench/bench_gpu_kernels"], needs="nvcc card"),
        Step("example", "examples/c/13_device.c, one rank", 30, ["{build}/examples/13_device"], needs="nccl", expects="device 0"),
        *(test(name, 120, beside=True) for name in SUITE),
        checked("memcheck", "kernels", kernels, **on_kernels),
        checked("racecheck", "kernels", kernels, **on_kernels),
        checked("synccheck", "kernels", kernels, **on_kernels),
        checked("memcheck", "calls", "{build}/tests/gpu/test_gpu_calls", needs="sanitizer nccl"),
        checked("memcheck", "reducer", "{build}/tests/gpu/test_gpu_reducer", needs="sanitizer nccl nvcc"),
        Step(
            "bench_torch", "bucket copies by PyTorch", 60,
            ["{torch_python}", "{source}/bench/bench_gpu_torch.py", "{build}/bench/bench_gpu_kernels"], needs="torch_python nvcc",
        ),
    ]
