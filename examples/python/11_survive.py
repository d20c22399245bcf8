#!/usr/bin/env python3
"""Training that survives the loss of a rank: rank 2 kills itself, and the others form a new communicator and continue.

    dscrun -n 4 --allow-failures 1 -- python3 11_survive.py
"""

import os
import signal

import numpy as np

import digits
import libdsc as dsc

STEPS, BATCH, RATE = 150, 96, 0.1
VICTIM, LAST_STEP = 2, 60


def train(comm, net, step, images, labels):
    """Trains from a step on, on all ranks together. Returns when all steps are done, and raises an error if a rank is
    lost.
    """
    reducer = dsc.BucketReducer(comm, net.params)  # copies rank 0's parameters to all
    order = np.random.default_rng(0).permutation(len(labels))
    for step in range(step, STEPS):
        if dsc.world().rank == VICTIM and step == LAST_STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = order[np.arange(step * BATCH, (step + 1) * BATCH) % len(order)][comm.rank :: comm.size]
        net.loss(net.forward(images[batch]), labels[batch])
        reducer.begin()
        grads = {}
        for index, grad in net.backward():
            grads[index] = np.ascontiguousarray(grad)
            reducer.mark_ready(index, grads[index])
        reducer.finish()  # raises on all ranks that survive, although some may just have completed the step
        for index, grad in grads.items():
            net.params[index] -= RATE * grad
        done[0] = step + 1


def survive(comm):
    """Returns a communicator of the surviving ranks, which all continue from the same step."""
    survivors = comm.shrink()
    lost = comm.missing
    steps = np.zeros((survivors.size, 1), np.int64)
    survivors.all_gather(steps, done)
    done[0] = steps[0, 0]  # the step of rank 0's parameters, which the next reducer copies to all ranks
    print(f"rank {comm.rank} is now rank {survivors.rank} of {survivors.size}, without rank {lost[0]}", flush=True)
    if survivors.rank == 0:
        print(f"steps done were {steps[:, 0].tolist()}; going on from step {done[0]}", flush=True)
    return survivors


world = comm = dsc.init_distributed(timeout=60)
(images, labels), (test_images, test_labels) = digits.load()
net = digits.Network([64, 32, 10], seed=world.rank)
done = np.zeros(1, np.int64)  # number of completed steps
while done[0] < STEPS:
    try:
        train(comm, net, int(done[0]), images, labels)
    except (dsc.PeerError, dsc.RevokedError) as error:
        print(f"rank {comm.rank}: {type(error).__name__}: {error}", flush=True)
        comm = survive(comm)

accuracy = (net.forward(test_images).argmax(axis=1) == test_labels).mean()
good = comm.agree(bool(accuracy > 0.9))  # the same answer on all surviving ranks
if comm.rank == 0:
    print(f"test accuracy {accuracy:.1%} on {comm.size} ranks, at least 90% wanted: {'reached' if good else 'MISSED'}")
dsc.finalize()  # waits for all surviving ranks
raise SystemExit(not good)
