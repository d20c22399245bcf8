"""NCCL and CUDA's driver, named by a path or found in a folder of wheels. The libraries are copies of the fakes."""

import ctypes
import os
import shutil
import sys
import threading

import device_arrays
import pytest

import libdsc as dsc

SECONDS = 50  # the time limit of a job


def named(rank, nccl, cuda):
    os.environ.update(DSC_NCCL_LIBRARY="/nowhere/nccl.so", DSC_CUDA_LIBRARY="/nowhere/cuda.so")
    options = {"device": rank, "nccl_library": nccl, "cuda_library": cuda, "init_timeout": 20}
    for name, path in [("nccl_library", "/elsewhere/nccl.so"), ("cuda_library", "/elsewhere/cuda.so")]:
        said = f"rank 1: .* cannot be loaded from {path}, which {name} names"
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
    assert dsc.spawn(named, 2, fakes(), timeout=SECONDS) == [("device", 0), ("device", 1)]


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
        assert "rank 1: this process already uses CUDA's driver from " in text and f"cuda_library names {others[1]}" in text
    for text in nccl_text:
        assert f"rank 1: nccl_library names {others[0]}, but this process has loaded another copy of NCCL" in text


def made_up_site(folder, nccl):
    """Makes a folder with the files that pip installs."""
    wheel = folder / "nvidia" / "nccl" / "lib"
    wheel.mkdir(parents=True)
    return str(shutil.copy(nccl, wheel / "libnccl.so.2"))


def loaded(path):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return path in maps.read()


def in_site(rank, site, wheel):
    del os.environ["DSC_NCCL_LIBRARY"]
    sys.path[:0] = ["elsewhere", site]
    options = {"backend": "device", "init_timeout": 20}
    first = dsc.init_distributed(**options)
    assert dsc.init_distributed() is first and dsc.init_distributed(**options) is first
    with pytest.raises(dsc.StateError, match="with another timeout;"):
        dsc.init_distributed(**options, timeout=7)
    backend, found = first.backend, loaded(wheel)
    dsc.finalize()
    again = dsc.init_distributed(device=rank)  # now the copy is the loaded library
    same = dsc.init_distributed(device=rank) is again
    dsc.finalize()
    return backend, found, same


def test_nccl_of_a_wheel_is_found_in_the_folders_of_the_interpreter(tmp_path):
    nccl, _ = fakes()
    wheel = made_up_site(tmp_path, nccl)
    ranks = dsc.spawn(in_site, 2, (str(tmp_path), wheel), timeout=SECONDS)
    assert ranks == [("device", True, True)] * 2


def in_site_but(_, site, wheel, named, framework):
    sys.path.insert(0, site)
    if named is None:
        del os.environ["DSC_NCCL_LIBRARY"]
    if framework is not None:
        ctypes.CDLL(framework)
    world = dsc.init_distributed(backend="device", init_timeout=20)
    found = world.backend, loaded(wheel)
    dsc.finalize()
    return found


@pytest.mark.parametrize("by_framework", [True, False])
def test_a_named_or_a_loaded_nccl_comes_before_a_wheel(tmp_path, by_framework):
    nccl, _ = fakes()
    wheel = made_up_site(tmp_path, nccl)
    arguments = (str(tmp_path), wheel, None, nccl) if by_framework else (str(tmp_path), wheel, nccl, None)
    assert dsc.spawn(in_site_but, 1, arguments, timeout=SECONDS) == [("device", False)]


def without_a_context(_, site, wheel):
    del os.environ["DSC_NCCL_LIBRARY"]
    sys.path.insert(0, site)
    world = dsc.init_distributed(init_timeout=20)
    found = world.backend, loaded(wheel), loaded(os.environ["DSC_CUDA_LIBRARY"])
    dsc.finalize()
    return found


def test_who_wants_no_device_does_not_look_for_nccl(tmp_path):
    fakes()
    wheel = tmp_path / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    wheel.parent.mkdir(parents=True)
    wheel.write_text("no library")
    assert dsc.spawn(without_a_context, 2, (str(tmp_path), str(wheel)), timeout=SECONDS) == [("host", False, False)] * 2


def in_a_context(_, site, wheel):
    del os.environ["DSC_NCCL_LIBRARY"]
    sys.path.insert(0, site)
    device_arrays.work_on(0)
    world = dsc.init_distributed(init_timeout=20)
    found = world.backend, loaded(wheel)
    assert dsc.init_distributed() is world
    dsc.finalize()
    return found


def test_in_a_context_a_wheel_is_found_and_a_broken_one_refuses_nobody(tmp_path):
    nccl, _ = fakes()
    wheel = made_up_site(tmp_path / "whole", nccl)
    assert dsc.spawn(in_a_context, 1, (str(tmp_path / "whole"), wheel), timeout=SECONDS) == [("device", True)]
    broken = made_up_site(tmp_path / "broken", __file__)
    assert dsc.spawn(in_a_context, 1, (str(tmp_path / "broken"), broken), timeout=SECONDS) == [("host", False)]
