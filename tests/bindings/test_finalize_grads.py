"""The end of a training step for a model that several groups of ranks share."""

import numpy as np
import pytest

import libdsc as dsc
import libdsc.megatron as mpu
from libdsc import _finalize_grads
from test_ranks import ranks


def spy(told):
    """Records the groups of all operations of this process."""
    kind = dsc.Communicator
    for name in ("all_reduce", "broadcast"):
        original = getattr(kind, name)

        def noted(self, x, *rest, _name=name, _original=original, **more):
            told.append((_name, self.name, rest[0] if _name == "all_reduce" and rest else None, len(x)))
            return _original(self, x, *rest, **more)

        setattr(kind, name, noted)
    coalesced = _finalize_grads.all_reduce_coalesced

    def noted_list(comm, arrays, op):
        told.append(("all_reduce", comm.name, op, sum(x.size for x in arrays)))
        coalesced(comm, arrays, op)

    _finalize_grads.all_reduce_coalesced = noted_list


def value(rank, kind, size):
    return (np.arange(size) % 7 + 10.0 * rank + kind).astype(np.float32)


def finishes(world):
    """Runs with two tensor-parallel ranks, two replicas and two stages."""
    mpu.initialize_model_parallel(2, 2)
    rank, told = world.rank, []
    first, last = mpu.is_pipeline_first_stage(), mpu.is_pipeline_last_stage()
    data = value(rank, 1, 40)
    conditional = [value(rank, 2, 5)]
    norms, heads = [value(rank, 3, 6), value(rank, 4, 3).reshape(3, 1)], [value(rank, 5, 4)]
    words, places = [value(rank, 6, 30)], [value(rank, 7, 8)] if first else []
    bias, tokens = np.zeros(4, np.float32), np.array([rank, 1, 0, 100], np.float32)
    spy(told)
    total = dsc.finalize_grads(
        [data, *conditional, *norms, *heads, *words, *places],
        reducers=[lambda: mpu.get_data_parallel_group().all_reduce(data, "avg")],
        pipeline=mpu.get_pipeline_model_parallel_group(),
        conditional_embedder=conditional,
        tensor=mpu.get_tensor_model_parallel_group(),
        sequence_parallel=norms,
        averaged=heads,
        embedding=mpu.get_embedding_group(),
        word_embeddings=words,
        position_embedding=mpu.get_position_embedding_group() if first else None,
        position_embeddings=places,
        experts=mpu.get_tensor_and_data_parallel_group(),
        expert_biases=[bias],
        expert_tokens=[tokens],
        bias_update_rate=0.25,
        data=mpu.get_data_parallel_group(),
        num_tokens=3 + rank // 2 % 2 if last else 0,
    )
    assert heads[0].shape == (4,) and norms[1].shape == (3, 1)
    return total, told, [data, *conditional, norms[0], norms[1], *heads, *words, *places], bias, tokens


def test_a_step_of_eight_ranks():
    found = ranks(8, finishes)
    for rank, (total, told, grads, bias, tokens) in enumerate(found):
        tp, pp = rank % 2, rank // 4
        assert total == 3 + 4
        pair, stages, replicas = (rank - tp, rank - tp + 1), (rank % 4, rank % 4 + 4), (rank & 5, rank & 5 | 2)
        expected = [
            (value(replicas[0], 1, 40) + value(replicas[1], 1, 40)) / 2,
            value(stages[0], 2, 5) + value(stages[1], 2, 5),
            value(pair[0], 3, 6) + value(pair[1], 3, 6),
            (value(pair[0], 4, 3) + value(pair[1], 4, 3)).reshape(3, 1),
            (value(pair[0], 5, 4) + value(pair[1], 5, 4)) / 2,
            value(stages[0], 6, 30) + value(stages[1], 6, 30),
        ] + ([value(rank, 7, 8)] if pp == 0 else [])
        assert len(grads) == len(expected)
        for got, wanted in zip(grads, expected):
            assert np.array_equal(got, (wanted * np.float32(1 / 7)).astype(np.float32))
        assert tokens.tolist() == [sum(range(4 * pp, 4 * pp + 4)), 4, 0, 400]
        assert bias.tolist() == [0.25, 0.25, 0.25, -0.25]
        stage, tensor, replica, all_of_stage = told[1][1], told[2][1], told[0][1], told[5][1]
        assert told == [
            ("all_reduce", replica, "avg", 40),
            ("all_reduce", stage, "sum", 5),
            ("all_reduce", tensor, "sum", 6 + 3),
            ("all_reduce", tensor, "avg", 4),
            ("all_reduce", stage, "sum", 30),
            ("all_reduce", all_of_stage, "sum", 4),
            ("broadcast", stage, None, 1),
            ("all_reduce", replica, None, 1),
        ]
        assert (stage, tensor, replica, all_of_stage) == ("pp", "tp", "dp_cp", "tp_dp_cp")


def packs(world):
    """Each type is packed separately. Half-precision gradients are scaled in f32."""
    halves = [np.full(3, 60000, np.float16), np.full((2, 1), 2, np.float16)]
    doubles, whole = np.full(2, 1e300), np.full(3, 5, np.float32)
    total = dsc.finalize_grads(
        [*halves, doubles], tensor=world, averaged=[halves[0], doubles, halves[1]], sequence_parallel=[whole],
        data=world, num_tokens=500_000,
    )
    return total, halves[0].tolist(), halves[1].tolist(), doubles.tolist(), whole.tolist()


def test_types_are_packed_by_themselves():
    total, large, small, doubles, whole = ranks(2, packs)[1]
    assert total == 1_000_000 and whole == [10, 10, 10]
    assert large == [np.float16(0.06)] * 3 and small == [[np.float16(2e-6)]] * 2
    assert doubles == [1e300 * 1e-6] * 2


def reduces(world):
    """A given BucketReducer is finished first. Without other arguments nothing else is done."""
    grad = np.full(5, world.rank, np.float32)
    reducer = dsc.BucketReducer(world, [np.zeros(5, np.float32)])
    reducer.begin()
    reducer.mark_ready(0, grad)
    assert dsc.finalize_grads([grad], reducers=[reducer]) is None
    return grad.tolist()


def test_reducers_are_finished():
    assert ranks(2, reduces) == [[0.5] * 5] * 2


def test_without_tokens_nothing_is_divided_by_zero():
    grad = np.ones(3)
    assert dsc.finalize_grads([grad], num_tokens=0) == 0
    assert grad.tolist() == [1, 1, 1]


WRONG = [
    (dict(word_embeddings=[np.zeros(3)]), ValueError, "word_embeddings has arrays, but embedding is None; expected the group"),
    (dict(tensor=3), TypeError, "tensor is a int; expected a Communicator"),
    (dict(data="dp"), TypeError, "data is a str; expected a Communicator"),
    (dict(expert_biases=[np.zeros(3)]), ValueError, "expert_biases has 1 arrays; expected 0, like expert_tokens"),
    (dict(num_tokens=-1), ValueError, "num_tokens is -1; expected 0 to"),
    (dict(num_tokens=1.5), TypeError, "num_tokens is 1.5; expected an integer"),
    (dict(bias_update_rate="x"), TypeError, "bias_update_rate is 'x'; expected a number"),
    (dict(grads=[np.zeros(3, np.int32)], num_tokens=1), TypeError, r"grads\[0\] has element type int32; expected a floating-point type"),
    (dict(grads=[b"abcd"], num_tokens=1), ValueError, r"grads\[0\] is read-only"),
]


@pytest.mark.parametrize("arguments, kind, text", WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_wrong_arguments_are_told_before_anything_happens(arguments, kind, text):
    called = []
    with pytest.raises(kind, match=text):
        dsc.finalize_grads(reducers=[lambda: called.append(1)], **arguments)
    assert called == []


def test_biases_must_fit_their_tokens():
    with dsc.init_distributed() as world:
        for bias, tokens, text in (
            (np.zeros(3), np.zeros(4), r"expert_biases\[0\] has 3 elements; expected 4, like expert_tokens\[0\]"),
            (np.zeros(4, np.int32), np.zeros(4), "expected a floating-point type"),
        ):
            with pytest.raises((ValueError, TypeError), match=text):
                dsc.finalize_grads(experts=world, expert_biases=[bias], expert_tokens=[tokens])
        bias = np.zeros(4)
        dsc.finalize_grads(experts=world, expert_biases=[bias], expert_tokens=[np.array([1, 2, 3, 2])])
        assert bias.tolist() == [1e-3, 0, -1e-3, 0]
