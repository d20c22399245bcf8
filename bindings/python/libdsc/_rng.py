"""Named states of random number generators, and seeds for the ranks of a model-parallel job."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional

from libdsc._arguments import SIZE, brief, integer
from libdsc._memory import numpy_module
from libdsc._partition import seed_layer, seed_region

# The names of the regions' states in Megatron-LM (core/tensor_parallel/random.py).
DATA_PARALLEL_RNG = "data-parallel-rng"
MODEL_PARALLEL_RNG = "model-parallel-rng"
EXPERT_PARALLEL_RNG = "expert-parallel-rng"


class RngError(KeyError):
    """The tracker does not have the requested state, or the state or seed to add is already in use.

    Attributes:
        name: the name of the state.
        seed: the seed that is already used, or None.
    """

    def __init__(self, message: str, name: str, seed: Optional[int] = None) -> None:
        super().__init__(message, name, seed)
        self.message, self.name, self.seed = message, name, seed

    # KeyError's __str__ would show the arguments instead of the text.
    def __str__(self) -> str:
        return self.message


class ModelParallelSeeds(NamedTuple):
    """The seeds of a rank's random number regions."""

    # The seed for values that all ranks of a model hold completely. It is equal on these ranks.
    data: int
    tensor: int  # different on each rank of a tensor-parallel group
    # The seed for experts. It is different on ranks that hold different experts, or different parts of experts.
    expert: int


def model_parallel_seeds(seed: int, tp_rank: int = 0, ep_rank: int = 0, etp_rank: int = 0) -> ModelParallelSeeds:
    """Returns the seeds of all regions on one rank, with Megatron-LM's numbers; seed_region() returns one of them.

    Args:
        seed: the seed of the run, or of the pipeline stage.
        tp_rank: rank in the tensor-parallel group.
        ep_rank: rank in the expert-parallel group.
        etp_rank: rank in the tensor-parallel group of the experts.
    """
    ranks = (tp_rank, ep_rank, etp_rank)
    return ModelParallelSeeds(*(seed_region(seed, region, *ranks) for region in ("data", "tensor", "expert")))


class RngTracker:
    """Named random number generators that continue from their last state, like Megatron-LM's CudaRNGStatesTracker.

        tracker = dsc.RngTracker()
        tracker.add_regions(1234, tp_rank=tensor.rank)
        with tracker.fork() as rng:                  # "model-parallel-rng", different on each tensor-parallel rank
            keep = rng.random(x.shape) > 0.1

    Without arguments it holds numpy Generators (PCG64), and fork() yields the generator with the given name. With three
    functions of another library it holds states of that library's generator; fork() sets the state for its block:

        dsc.RngTracker(torch.cuda.get_rng_state, torch.cuda.set_rng_state, torch.cuda.manual_seed)

    Use it from one thread at a time. It does not know the ranks: ranks get different numbers from different seeds.

    Args:
        get_state: get_state() returns the state of the library's generator, as a separate object.
        set_state: set_state(state) sets it.
        seed: seed(number) seeds it.
    """

    __slots__ = ("_get_state", "_set_state", "_seed", "_states", "_seeds", "_open")

    def __init__(
        self,
        get_state: Optional[Callable[[], Any]] = None,
        set_state: Optional[Callable[[Any], Any]] = None,
        seed: Optional[Callable[[int], Any]] = None,
    ) -> None:
        given = {"get_state": get_state, "set_state": set_state, "seed": seed}
        missing = [name for name, function in given.items() if function is None]
        if missing and len(missing) < len(given):
            raise TypeError(f"{' and '.join(missing)} is missing; expected all three of {', '.join(given)}, or none")
        self._get_state, self._set_state, self._seed = get_state, set_state, seed
        self.reset()

    def __repr__(self) -> str:
        return f"<libdsc.RngTracker of {', '.join(map(repr, self._states)) or 'nothing'}>"

    @property
    def names(self) -> list[str]:
        """The names of its states, in the order in which they were added."""
        return list(self._states)

    def reset(self) -> None:
        """Removes all states and seeds."""
        self._states: dict[str, Any] = {}  # numpy's generators, or the other library's states
        self._seeds: dict[int, str] = {}
        self._open: set[str] = set()

    def seed_library(self, seed: int) -> None:
        """Seeds the generator of the other library, outside all states. With numpy Generators it does nothing."""
        if self._seed is not None:
            self._seed(integer("seed", seed, *SIZE))

    def add(self, name: str, seed: int) -> None:
        """Adds a state that starts from a seed. Raises RngError if the name or the seed is already used.

        Two generators with one seed would give the same numbers.
        """
        number = integer("seed", seed, *SIZE)
        if not isinstance(name, str):
            raise TypeError(f"name is {brief(name)}; expected a string")
        if name in self._states:
            raise RngError(f"state {name!r} already exists; expected a new name", name)
        if number in self._seeds:
            taken = self._seeds[number]
            raise RngError(f"seed {number} for {name!r} is already used by {taken!r}; expected another seed", name, number)
        self._states[name] = self._seeded(number)
        self._seeds[number] = name

    def add_regions(self, seed: int, tp_rank: int = 0, ep_rank: int = 0, etp_rank: int = 0) -> None:
        """Adds "data-parallel-rng", "model-parallel-rng" and "expert-parallel-rng": see model_parallel_seeds()."""
        seeds = model_parallel_seeds(seed, tp_rank, ep_rank, etp_rank)
        for name, number in zip((DATA_PARALLEL_RNG, MODEL_PARALLEL_RNG, EXPERT_PARALLEL_RNG), seeds):
            self.add(name, number)

    def add_layers(self, seed: int, layers: int, method: str = "split_mix") -> None:
        """Adds a state for each layer of a model, "layer-0" and so on, seeded by seed_layer().

        Its numbers do not depend on the stage that has the layer.
        """
        for layer in range(integer("layers", layers, 0)):
            self.add(f"layer-{layer}", seed_layer(seed, layer, method))

    @contextmanager
    def fork(self, name: str = MODEL_PARALLEL_RNG) -> Iterator[Any]:
        """Uses the named state in its block, and stores the new state at the end.

        It yields the numpy Generator, or None with the functions of another library. After the block, that library's
        generator gets back the state from before the block. Blocks of different names may be nested.
        """
        self._expect(name)
        if name in self._open:
            raise RngError(f"the state {name!r} is already in use by an enclosing fork() block; expected another name", name)
        self._open.add(name)
        try:
            if self._get_state is None:
                yield self._states[name]
            else:
                with self._exchanged(name):
                    yield None
        finally:
            self._open.discard(name)

    def get_states(self) -> dict[str, Any]:
        """Returns copies of all states by name, for saving.

        For numpy these are dicts of numbers and strings, otherwise results of get_state().
        """
        if self._get_state is None:
            return {name: copy.deepcopy(rng.bit_generator.state) for name, rng in self._states.items()}
        return copy.deepcopy(self._states)

    def set_states(self, states: Mapping[str, Any]) -> None:
        """Replaces all states by those that get_states() returned, so that they give the same numbers again.

        Seeds that were added before still count as used.
        """
        if self._open:
            raise RngError(f"the state {min(self._open)!r} is in use by a fork() block; expected a call outside fork() blocks", min(self._open))
        made = {name: self._loaded(name, state) for name, state in states.items()}
        self._states = made

    def _expect(self, name: str) -> None:
        if name not in self._states:
            known = ", ".join(map(repr, self._states)) or "none"
            raise RngError(f"unknown state {name!r}; expected one of: {known}", name)

    def _seeded(self, number: int) -> Any:
        if self._get_state is None:
            numpy = numpy_module()
            return numpy.random.Generator(numpy.random.PCG64(number))
        assert self._set_state is not None and self._seed is not None
        before = self._get_state()
        try:
            self._seed(number)
            return self._get_state()
        finally:
            self._set_state(before)

    def _loaded(self, name: str, state: Any) -> Any:
        if self._get_state is not None:
            return copy.deepcopy(state)
        numpy = numpy_module()
        bits = numpy.random.PCG64()
        try:
            bits.state = copy.deepcopy(state)
        except (TypeError, ValueError, KeyError) as error:
            raise ValueError(f"states[{name!r}] is not from get_states(): {error}") from None
        return numpy.random.Generator(bits)

    @contextmanager
    def _exchanged(self, name: str) -> Iterator[None]:
        assert self._get_state is not None and self._set_state is not None
        before = self._get_state()
        self._set_state(self._states[name])
        try:
            yield
        finally:
            self._states[name] = self._get_state()
            self._set_state(before)
