#!/usr/bin/env python3
"""Prints the layers of a decoder-only transformer as CSV for `dscctl plan`, computed from numbers of operations.

Nothing is measured. A product of an n x k matrix and a k x m matrix counts as 2 n k m operations. The time is this
number divided by the device's rate, which is an option. Each half of a backward pass counts as many operations as the
forward pass. Weights and activations take 2 bytes each. A block holds 34 bytes per token and channel, and 5 per pair of
tokens and head, for its backward pass (Korthikanti et al. 2022, arXiv:2205.05198). With --recompute, it holds only its
input, and computes its forward pass once more in the first half of the backward pass.
"""

import argparse

COLUMNS = "name,forward_us,backward_input_us,backward_weight_us,weight_bytes,activation_bytes,output_bytes"
BYTES = 2


def block_operations(tokens: int, channels: int) -> tuple[int, int]:
    """Returns operations with weights (query, key, value, output, and two with four times the channels), and of
    attention without weights.
    """
    return 2 * tokens * 12 * channels * channels, 4 * tokens * tokens * channels


def block(number: int, it: argparse.Namespace, us: float) -> str:
    weighted, attention = block_operations(it.tokens, it.channels)
    forward = (weighted + attention) * us
    held = it.tokens * it.channels * BYTES if it.recompute else it.tokens * (34 * it.channels + 5 * it.heads * it.tokens)
    backward_input = (weighted + 2 * attention) * us + (forward if it.recompute else 0)
    weights = 12 * it.channels * it.channels * BYTES
    return row(f"block {number}", forward, backward_input, weighted * us, weights, held, it.tokens * it.channels * BYTES)


def row(name: str, forward: float, backward_input: float, backward_weight: float, *sizes: int) -> str:
    times = (f"{value:.2f}" for value in (forward, backward_input, backward_weight))
    return ",".join([name, *times, *(str(size) for size in sizes)])


def layers(it: argparse.Namespace) -> list[str]:
    us = 1e6 / (it.tflops * 1e12)  # per operation
    width = it.tokens * it.channels * BYTES
    table = it.words * it.channels * BYTES
    last = 2 * it.tokens * it.channels * it.words * us
    return [
        row("embedding", 0, 0, 0, table, 0, width),
        *(block(number, it, us) for number in range(it.blocks)),
        row("loss", last, last, last, table, width + 4 * it.tokens * it.words, 0),
    ]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=32)
    parser.add_argument("--channels", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=2048, help="of a sample")
    parser.add_argument("--words", type=int, default=32000, help="of the vocabulary")
    parser.add_argument("--tflops", type=float, default=400, help="that a device keeps up (default: 400, an assumption)")
    parser.add_argument("--recompute", action="store_true", help="blocks hold their input alone")
    return parser.parse_args()


if __name__ == "__main__":
    print(COLUMNS, *layers(options()), sep="\n")
