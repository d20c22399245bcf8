"""NCCL and CUDA's driver named by path, by copies of the fakes."""

import os
import shutil
import threading

import pytest

import libdsc as dsc

SECONDS = 50  # for everything that must not take so long


def named(rank, nccl, cuda):
    os.environ.update(DSC_NCCL_LIBRARY="/nowhere/nccl.so", DSC_CUDA_LIBRARY="/nowhere/cuda.so")
    options = {"device": rank, "nccl_library": nccl, "cuda_library": cuda, "init_timeout": 20}
    for name, path in [("nccl_library", "/elsewhere/nccl.so"), ("cuda_library", "/elsewhere/cuda.so")]:
        said = f"rank 1: .* cannot be loaded from {path}, which option {name} names"
        with pytest.raises(dsc.NoBackendError, match=said):
            dsc.init_distributed(**options | ({name: path} if rank == 1 else {}))
    world = dsc.init_distributed(**options)
    backend, device = world.backend, world.device
    dsc.finalize()
    return backend, device


def fakes():
    if "DSC_NCCL_LIBRARY" not in os.environ:
        pytest.skip("copies of the fakes are needed")
    return os.environ["DSC_NCCL_LIBRARY"], os.environ["DSC_CUDA_LIBRARY"]


def test_libraries_named_by_path():
    assert dsc.spawn(named, 2, fakes(), timeout=SECONDS) == [("nccl", 0), ("nccl", 1)]


def ranks_of_one_process(_, nccl, cuda, other_nccl, other_cuda):
    def start(rank, options, said):
        try:
            dsc.init_distributed(rank=rank, world_size=2, rank_per_thread=True, device=rank, init_timeout=20, **options)
            dsc.finalize()
        except dsc.NoBackendError as error:
            said[rank] = str(error)

    def start_both(**second):
        first, said = {"nccl_library": nccl, "cuda_library": cuda}, ["", ""]
        threads = [threading.Thread(target=start, args=(rank, first | (second if rank else {}), said)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return said

    return [start_both(), start_both(cuda_library=other_cuda), start_both(nccl_library=other_nccl), start_both()]


def test_ranks_of_one_process_use_the_same_libraries(tmp_path):
    nccl, cuda = fakes()
    others = [shutil.copy(path, tmp_path) for path in (nccl, cuda)]
    fine, driver_text, nccl_text, again = dsc.spawn(ranks_of_one_process, 1, (nccl, cuda, *others), timeout=SECONDS)[0]
    assert fine == again == ["", ""]
    for text in driver_text:
        assert "rank 1: this process uses CUDA's driver of " in text and f"option cuda_library names {others[1]}" in text
    for text in nccl_text:
        assert f"rank 1: option nccl_library names {others[0]}, but this process has loaded another copy of NCCL" in text
