"""Named random number generators, and the seeds of the ranks that share a model."""

import copy
import json
import pickle
import random

import numpy as np
import pytest

import libdsc as dsc


def test_seeds_are_megatrons():
    assert dsc.model_parallel_seeds(1234) == (1234, 1234 + 2718, 1234 + 1024)
    seeds = dsc.model_parallel_seeds(1234, tp_rank=3, ep_rank=2, etp_rank=1)
    assert (seeds.data, seeds.tensor, seeds.expert) == (1234, 3955, 2459)
    with pytest.raises(dsc.InvalidArgError, match="tensor_rank is -1"):
        dsc.model_parallel_seeds(0, tp_rank=-1)


def test_a_state_goes_on_where_it_was_left():
    tracker = dsc.RngTracker()
    tracker.add("a", 1)
    tracker.add("b", 2)
    drawn = []
    for name in "abaab":
        with tracker.fork(name) as rng:
            drawn.append(rng.random())
    a, b = (np.random.Generator(np.random.PCG64(seed)) for seed in (1, 2))
    assert drawn == [a.random(), b.random(), a.random(), a.random(), b.random()]
    assert tracker.names == ["a", "b"] and repr(tracker) == "<libdsc.RngTracker of 'a', 'b'>"


@pytest.mark.parametrize("save", [copy.deepcopy, lambda x: json.loads(json.dumps(x)), lambda x: pickle.loads(pickle.dumps(x))])
def test_states_that_were_saved_give_the_same_numbers(save):
    tracker = dsc.RngTracker()
    tracker.add_regions(7)
    with tracker.fork() as rng:
        rng.normal(size=5)
    states = save(tracker.get_states())
    with tracker.fork() as rng:
        expected = rng.normal(size=9)
    other = dsc.RngTracker()
    other.set_states(states)
    for again in (tracker, other):
        again.set_states(states)
        with again.fork() as rng:
            assert np.array_equal(rng.normal(size=9), expected)
    assert other.names == ["data-parallel-rng", "model-parallel-rng", "expert-parallel-rng"]


def test_a_copy_does_not_change_with_the_tracker():
    tracker = dsc.RngTracker()
    tracker.add("a", 1)
    states = tracker.get_states()
    before = copy.deepcopy(states)
    with tracker.fork("a") as rng:
        rng.random()
    assert states == before != tracker.get_states()


def test_layers_do_not_depend_on_stages():
    whole, stage = dsc.RngTracker(), dsc.RngTracker()
    whole.add_layers(1234, 4)
    stage.add("layer-2", dsc.seed_layer(1234, 2))
    with whole.fork("layer-2") as one, stage.fork("layer-2") as two:
        assert one.integers(1 << 60) == two.integers(1 << 60)
    whole.reset()
    whole.add_layers(1234, 2, "deepspeed")
    with whole.fork("layer-1") as one:
        assert one.random() == np.random.Generator(np.random.PCG64(1235)).random()


def python_tracker():
    return dsc.RngTracker(random.getstate, random.setstate, random.seed)


def test_the_generator_of_another_library():
    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    tracker = python_tracker()
    tracker.add("a", 1)
    tracker.add("b", 2)
    drawn = [random.random()]
    with tracker.fork("a") as nothing:
        first = random.random()
        with tracker.fork("b"):
            inner = random.random()
        second = random.random()
    drawn.append(random.random())
    with pytest.raises(ZeroDivisionError):
        with tracker.fork("a"):
            third = random.random()
            1 / 0
    drawn.append(random.random())
    assert drawn == expected and nothing is None
    a, b = random.Random(1), random.Random(2)
    assert [first, second, third, inner] == [a.random(), a.random(), a.random(), b.random()]
    states = tracker.get_states()
    with tracker.fork("a"):
        fourth = random.random()
    tracker.set_states(states)
    with tracker.fork("a"):
        assert random.random() == fourth == a.random()


def refuse(kind, text, call, *arguments):
    with pytest.raises(kind) as caught:
        call(*arguments)
    assert text in str(caught.value)
    return caught.value


def forks(tracker, *names):
    if names:
        with tracker.fork(names[0]):
            forks(tracker, *names[1:])


def test_refusals():
    tracker = dsc.RngTracker()
    tracker.add("a", 1)
    error = refuse(dsc.RngError, "state 'a' already exists; expected a new name", tracker.add, "a", 2)
    assert isinstance(error, KeyError) and (error.name, error.seed) == ("a", None)
    error = refuse(dsc.RngError, "seed 1 for 'b' is already used by 'a'; expected another seed", tracker.add, "b", 1)
    assert (error.name, error.seed) == ("b", 1)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    refuse(dsc.RngError, "unknown state 'model-parallel-rng'; expected one of: 'a'", forks, tracker, "model-parallel-rng")
    refuse(dsc.RngError, "expected one of: none", forks, dsc.RngTracker(), "x")
    refuse(dsc.RngError, "the state 'a' is already in use", forks, tracker, "a", "a")
    refuse(TypeError, "name is 3; expected a string", tracker.add, 3, 3)
    refuse(TypeError, "seed is 'x'; expected an integer", tracker.add, "b", "x")
    refuse(ValueError, "seed is -1; expected 0 to", tracker.add, "b", -1)
    refuse(ValueError, "states['a'] is not from get_states()", tracker.set_states, {"a": 5})
    refuse(ValueError, "states['a'] is not from get_states", tracker.set_states, {"a": {"bit_generator": "MT19937"}})
    refuse(TypeError, "set_state and seed is missing; expected all three", dsc.RngTracker, random.getstate)
    with tracker.fork("a"):
        refuse(dsc.RngError, "the state 'a' is in use by a fork() block; expected a call outside fork() blocks", tracker.set_states, {})
    assert tracker.names == ["a"]
    tracker.reset()
    tracker.add("a", 1)


def test_ranks_whose_seeds_meet():
    """Megatron-LM's numbers repeat where 1694 + tp_rank equals 100 * ep_rank + etp_rank."""
    tracker = dsc.RngTracker()
    refuse(dsc.RngError, "seed 2724 for 'expert-parallel-rng' is already used by 'model-parallel-rng'", tracker.add_regions, 0, 6, 17)
