"""Partitions of layers, and seeds, through the Python package. The library's own tests have the recorded vectors."""

import doctest
import re

import numpy as np
import pytest

import libdsc as dsc
from conftest import ROOT

ALEXNET = [23296, 0, 0, 307392, 0, 0, 663936, 0, 884992, 0, 590080, 0, 0, 0, 0, 0, 37752832, 0, 0, 16781312, 0, 40970]


class Embedding:
    pass


class TransformerBlock:
    pass


def pool(x):
    return x


def test_a_partition_is_its_list_of_boundaries():
    partition = dsc.partition_layers(ALEXNET, 2)
    assert partition == [0, 19, 22] and isinstance(partition, list)
    assert repr(partition) == "[0, 19, 22]"
    assert partition.parts == 2 and partition.layers(1) == range(19, 22)
    assert [partition.part_of(layer) for layer in (0, 18, 19, 21)] == [0, 0, 1, 1]
    assert partition.weights == [40222528, 16822282]
    assert dsc.partition_layers(np.array(ALEXNET), np.int64(2)) == [0, 19, 22]


@pytest.mark.parametrize(
    "method, expected",
    [
        ("bottleneck", [0, 16, 19, 21, 22]),
        ("deepspeed_balanced", [0, 8, 16, 19, 22]),
        ("deepspeed_balanced_v0", [0, 16, 19, 22, 22]),
        ("uniform", [0, 6, 12, 17, 22]),
        ("uniform_v0", [0, 5, 10, 15, 22]),
    ],
)
def test_methods(method, expected):
    assert dsc.partition_layers(ALEXNET, 4, method) == expected


def test_uniform_needs_no_weights():
    assert dsc.partition_layers(None, 2, "uniform", names=["a", "b", "c"]) == [0, 2, 3]


class Weight:
    """Has only those attributes of a torch parameter that are needed to count its elements."""

    def __init__(self, count, trained=True):
        self.requires_grad, self._count = trained, count

    def numel(self):
        return self._count


class Linear:
    def __init__(self, *weights):
        self._weights = weights

    def parameters(self):
        return iter(self._weights)


def test_parameters_is_deepspeeds_method():
    layers = [Linear(Weight(100), Weight(10)), pool, Linear(Weight(110)), Linear(Weight(5), Weight(900, trained=False)), Linear]
    partition = dsc.partition_layers(None, 2, "parameters", names=layers)
    assert partition == dsc.partition_layers([110, 0, 110, 5, 0], 2, "deepspeed_balanced") and partition.weights == [110, 115]
    assert dsc.partition_layers(ALEXNET, 4, method="Parameters") == dsc.partition_layers(ALEXNET, 4, "deepspeed_balanced")


def test_print_is_in_deepspeeds_form():
    layers = [Embedding, *[TransformerBlock()] * 9, pool]
    partition = dsc.partition_layers([1] * 11, 2, "uniform", names=layers, loss=pool)
    assert str(partition).splitlines() == [
        "stage=0 layers=6",
        "     0: Embedding",
        *[f"     {i}: TransformerBlock" for i in range(1, 6)],
        "stage=1 layers=5",
        *[f"     {i}: TransformerBlock" for i in range(6, 10)],
        "    10: pool",
        "  loss: pool",
    ]
    assert str(dsc.partition_layers([1, 1, 1], 2)) == "stage=0 layers=2\nstage=1 layers=1"


def test_layers_of_a_type_are_spread():
    layers = [Embedding(), TransformerBlock(), pool, TransformerBlock(), pool, pool, TransformerBlock(), TransformerBlock()]
    assert dsc.type_weights(layers, "transformer") == [0, 1, 0, 1, 0, 0, 1, 1]
    partition = dsc.partition_layers(None, 2, "type:BLOCK|nothing", names=layers)
    assert partition == [0, 6, 8] and partition.weights == [2, 2]
    with pytest.raises(ValueError, match="no layer has 'lstm' in its name; the names are .*Embedding.*pool"):
        dsc.partition_layers(None, 2, "type:lstm", names=layers)


def test_memory_limits():
    weights, size = [1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 5]
    assert dsc.partition_layers(weights, 2) == [0, 3, 6]
    assert dsc.partition_layers(weights, 2, layer_bytes=size, part_limits=6) == [0, 4, 6]
    assert dsc.partition_layers(weights, 2, layer_bytes=size, part_limits=[9, 5]) == [0, 5, 6]
    with pytest.raises(dsc.InvalidArgError, match="part 1 cannot hold the remaining layers: .* 0 to 3 at most"):
        dsc.partition_layers(weights, 2, layer_bytes=size, part_limits=[4, 5])


@pytest.mark.parametrize(
    "arguments, options, error, text",
    [
        (([1, 2], 3), {}, dsc.InvalidArgError, "2 layers for 3 parts"),
        (([1, 2], 0), {}, dsc.InvalidArgError, "0 parts"),
        (([1, 2], -1), {}, ValueError, "parts is -1; expected 0 to"),
        (([1, -2], 2), {}, dsc.InvalidArgError, r"weights\[1\] is -2"),
        (([1, "x"], 2), {}, TypeError, r"weights\[1\] is 'x'; expected a number"),
        (([1, 2], 2, "even"), {}, dsc.InvalidArgError, "unknown method 'even'; expected one of: bottleneck"),
        ((None, 2), {}, ValueError, "weights is None; expected one number per layer"),
        ((None, 2, "uniform"), {}, ValueError, "names is None"),
        ((None, 2, "type:x"), {}, ValueError, "names is None; expected the names"),
        ((None, 2, "parameters"), {}, ValueError, "expected the number of parameters of each layer for method 'parameters'"),
        ((None, 2, "parameters"), {"names": ["a", "b"]}, ValueError, "or the layers themselves in names"),
        (([1, 2], 2), {"names": ["a"]}, ValueError, "names has 1 entries; expected 2"),
        (([1, 2], 2), {"layer_bytes": [1]}, ValueError, "layer_bytes has 1 entries; expected 2"),
        (([1, 2], 2), {"layer_bytes": [1, 1]}, dsc.InvalidArgError, "no limit of a part"),
        (([1, 2], 2), {"part_limits": 5}, dsc.InvalidArgError, "not the bytes of layers"),
        (([1, 2], 2), {"part_limits": -5}, ValueError, r"part_limits\[0\] is -5"),
    ],
)
def test_refusals(arguments, options, error, text):
    with pytest.raises(error, match=text):
        dsc.partition_layers(*arguments, **options)


def test_parts_and_layers_out_of_range():
    partition = dsc.partition_layers([1, 1], 2)
    with pytest.raises(ValueError, match="part is 2; expected 0 to 1"):
        partition.layers(2)
    with pytest.raises(ValueError, match="layer is -1; expected 0 to 1"):
        partition.part_of(-1)


def test_seeds():
    assert dsc.seed_layer(0, 0) == 0xA706DD2F4D197E6F
    assert dsc.seed_layer(2**64 - 1, 2**64 - 1) == 0x445018E305810B78
    assert dsc.seed_region(1234, "data", tensor_rank=3) == 1234
    assert dsc.seed_region(1234, "tensor", tensor_rank=3) == 1234 + 2718 + 3
    assert dsc.seed_region(1234, "expert", 3, expert_rank=2, expert_tensor_rank=1) == 1234 + 1024 + 201
    with pytest.raises(ValueError, match="region is 'pipe'; expected one of data, tensor, expert"):
        dsc.seed_region(1, "pipe")
    with pytest.raises(dsc.InvalidArgError, match="tensor_rank is -1, expected 0 or more"):
        dsc.seed_region(1, "tensor", -1)
    with pytest.raises(dsc.OverflowError):
        dsc.seed_region(2**64 - 1, "tensor")
    with pytest.raises(ValueError, match=r"seed is -1; expected 0 to 2\*\*64 - 1"):
        dsc.seed_layer(-1, 0)
    assert [dsc.seed_layer(1234, layer, method="deepspeed") for layer in range(3)] == [1234, 1235, 1236]
    assert dsc.seed_layer(1234, 95, "split_mix") == dsc.seed_layer(1234, 95) == 0xF7360057C7C7AB
    with pytest.raises(dsc.InvalidArgError, match="unknown method 'megatron'; expected split_mix or deepspeed"):
        dsc.seed_layer(0, 0, "megatron")
    with pytest.raises(dsc.OverflowError, match="expected at most 18446744073709551614: 1 is added to it"):
        dsc.seed_layer(2**64 - 1, 1, "deepspeed")


def test_the_document_shows_what_comes():
    text = (ROOT / "docs" / "partition.md").read_text()
    blocks = "\n".join(re.findall(r"^```python\n(>>>.*?)^```$", text, re.MULTILINE | re.DOTALL))
    examples = doctest.DocTestParser().get_doctest(blocks, {"dsc": dsc}, "partition.md", None, 0)
    assert doctest.DocTestRunner().run(examples).failed == 0
    assert len(examples.examples) > 5
    for limits, _ in re.findall(r"its limit is (\d+)$|may hold \((\d+)\)$", text, re.MULTILINE):
        with pytest.raises(dsc.InvalidArgError) as raised:
            dsc.partition_layers([1] * 6, 2, layer_bytes=[1] * 5 + [5], part_limits=[4, 5] if limits else 4)
        assert str(raised.value) in text
