#!/usr/bin/env python3
"""Measures torch.distributed with the gloo backend, with the same loop as the other drivers.

bench_torch.py BENCH_LOOP_LIBRARY ENGINE OP BYTES RANKS MEETING_FILE full|quick
"""

import ctypes
import datetime
import os
import sys

import torch
import torch.distributed as dist

Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
Prepare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
Call = ctypes.CFUNCTYPE(ctypes.c_int)

MOST_COLUMNS = 4096  # as in pattern.cpp

tensors = {}  # address -> tensor
operation = None


@Allocate
def allocate(count):
    tensor = torch.empty(count, dtype=torch.float32)
    tensors[tensor.data_ptr()] = tensor
    return tensor.data_ptr()


def mapping(op, source, target, count):
    """Implements mappings as Megatron-LM does: those of the last dimension use collectives of the first one. gloo has
    no reduce_scatter.
    """
    ranks = dist.get_world_size()
    columns = min(MOST_COLUMNS, count // ranks * ranks)
    rows = count * ranks // columns
    parts = [torch.empty(rows, columns // ranks) for _ in range(ranks)]
    stacked = torch.empty(count)

    def gather_columns():
        dist.all_gather(parts, source.view(rows, columns // ranks))
        torch.cat(parts, dim=-1, out=target.view(rows, columns))

    def sequence_to_hidden():
        torch.cat(source.view(rows // ranks, columns).split(columns // ranks, dim=1), out=stacked.view(rows, columns // ranks))
        dist.all_to_all_single(target, stacked)

    def hidden_to_sequence():
        dist.all_to_all_single(stacked, source)
        torch.cat(stacked.view(rows, columns // ranks).split(rows // ranks), dim=1, out=target.view(rows // ranks, columns))

    return locals()[op.decode()]


@Prepare
def prepare(op, in_address, out_address, count):
    global operation
    source, target = tensors.get(in_address), tensors.get(out_address)  # None if this rank has no such buffer
    source_parts, target_parts = (None if one is None else list(one.split(count)) for one in (source, target))
    peer = dist.get_rank() ^ 1

    def round_trip():
        if dist.get_rank() % 2 == 0:
            dist.send(source, peer)
            dist.recv(target, peer)
        else:
            dist.recv(target, peer)
            dist.send(target, peer)

    operation = {
        b"all_reduce": lambda: dist.all_reduce(target),
        b"broadcast": lambda: dist.broadcast(target, 0),
        b"all_gather": lambda: dist.all_gather(target_parts, source),
        b"all_to_all": lambda: dist.all_to_all_single(target, source),
        b"reduce": lambda: dist.reduce(source, 0),
        b"gather": lambda: dist.gather(source, target_parts, 0),
        b"scatter": lambda: dist.scatter(target, source_parts, 0),
        b"barrier": dist.barrier,
        b"send_recv": round_trip,
    }.get(op) or mapping(op, source, target, count)
    return 1


@Call
def call():
    operation()
    return 1


def main():
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    store = os.path.join(os.environ["BENCH_STORE"], "torch")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=datetime.timedelta(seconds=60),
    )
    arguments = [argument.encode() for argument in sys.argv[1:]]
    status = ctypes.CDLL(sys.argv[1]).bench_loop(
        len(arguments), (ctypes.c_char_p * len(arguments))(*arguments), rank, allocate, prepare, call
    )
    if status:
        os._exit(status)  # a normal exit would wait for ranks that are gone
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
