"""Pipeline schedules: which stage computes, sends and receives what, in which order."""

from __future__ import annotations

import ctypes
import operator
from ctypes import byref, c_int32, c_int64, c_void_p
from typing import Any, Iterator, NamedTuple, Optional

from libdsc import _raw
from libdsc._arguments import integer, string
from libdsc._library import check, lib

DONE = int(_raw.Result.DONE)
NONE = -1

_OPS = {int(op): op.name.lower() for op in _raw.PipeOp}


class PipeInstruction(NamedTuple):
    """One instruction of a stage; a field without meaning for its op is None.

    op is "load_micro_batch", "forward", "backward", "backward_input", "backward_weight", "send_activation",
    "recv_activation", "send_grad", "recv_grad", "reduce_tied_grads", "reduce_grads", "optimizer_step" or "overlap".
    """

    step: int  # 0 to steps - 1, never falling
    op: str
    micro_batch: Optional[int]
    chunk: Optional[int]  # part of the model on this stage
    buffer: Optional[int]  # place that holds the micro-batch here, 0 to buffers - 1
    peer: Optional[int]  # stage at the other end of a send or receive


class PipeStep(NamedTuple):
    """What a step computes: no micro-batch (None) when this stage only waits in it."""

    micro_batch: Optional[int]
    is_forward: bool


def instruction_of(raw: Any) -> PipeInstruction:
    """Turns the C form into ours."""
    return PipeInstruction(
        raw.step,
        _OPS[raw.op],
        _or_none(raw.micro_batch),
        _or_none(raw.chunk),
        _or_none(raw.buffer),
        _or_none(raw.peer),
    )


def _or_none(value: int) -> Optional[int]:
    return None if value == NONE else value


class _Handle:
    """Owns the library's schedule; arrays over the memory of its runs hold it too."""

    __slots__ = ("value", "__weakref__")

    def __init__(self, options: _raw.PipeScheduleOptions) -> None:
        self.value = 0
        made = c_void_p()
        check(lib.dsc_pipe_schedule_create(byref(options), byref(made)))
        assert made.value is not None
        self.value = made.value

    def __del__(self) -> None:
        try:
            lib.dsc_pipe_schedule_destroy(self.value)
        except Exception:  # at interpreter shutdown
            pass


class PipeSchedule:
    """The instructions of one stage for one batch; iterate over it as often as you like.

        for instruction in dsc.PipeSchedule("1f1b", stages=4, stage=1, micro_batches=8):
            print(instruction.step, instruction.op, instruction.micro_batch)

    Instructions are made one by one. len() counts them, which takes as long as an iteration; steps does not. A new
    iteration ends the one before. Closing is local.

    Args:
        name: "deepspeed_train", "deepspeed_inference", "data_parallel", "gpipe" or "1f1b".
        stages: devices of the pipeline.
        stage: whose instructions, 0 to stages - 1.
        micro_batches: of a batch; may be fewer than stages.
        chunks: parts of the model on every stage; 1 for all schedules above.
    """

    __slots__ = (
        "name",
        "stages",
        "stage",
        "micro_batches",
        "chunks",
        "_owner",
        "_handle",
        "_iteration",
        "_length",
        "_run_buffers",
        "__weakref__",
    )

    def __init__(self, name: str, stages: int, stage: int, micro_batches: int, chunks: int = 1) -> None:
        self.name = name
        self.stages = integer("stages", stages)
        self.stage = integer("stage", stage)
        self.micro_batches = integer("micro_batches", micro_batches)
        self.chunks = integer("chunks", chunks)
        self._owner: Optional[_Handle] = _Handle(self._options())
        self._handle = self._owner.value
        self._iteration = 0
        self._length: Optional[int] = None
        self._run_buffers: Any = None  # what runs of this schedule keep

    def __repr__(self) -> str:
        state = "" if self._handle else ", closed"
        place = f"stage {self.stage} of {self.stages}"
        return f"<libdsc.PipeSchedule {self.name!r}, {place}, {self.micro_batches} micro-batches{state}>"

    @property
    def steps(self) -> int:
        """The number of steps."""
        steps = c_int64()
        check(lib.dsc_pipe_schedule_steps(self._handle, byref(steps)))
        return steps.value

    @property
    def buffers(self) -> int:
        """How many micro-batches this stage must be able to hold at once."""
        buffers = c_int32()
        check(lib.dsc_pipe_schedule_buffers(self._handle, byref(buffers)))
        return buffers.value

    def step(self, step: int) -> PipeStep:
        """Says what a step computes, 0 to steps - 1."""
        if not 0 <= operator.index(step) < self.steps:
            raise IndexError(f"there is no step {step}; this schedule has {self.steps}")
        micro_batch, is_forward = c_int32(), c_int32()
        check(lib.dsc_pipe_schedule_step(self._handle, step, byref(micro_batch), byref(is_forward)))
        return PipeStep(_or_none(micro_batch.value), bool(is_forward.value))

    def __iter__(self) -> Iterator[PipeInstruction]:
        check(lib.dsc_pipe_schedule_reset(self._handle))
        self._iteration += 1
        return self._walk(self._iteration)

    def __len__(self) -> int:
        if self._length is None:
            other = _Handle(self._options())  # whoever iterates keeps the place
            self._length = sum(1 for _ in _instructions(other.value))
        return self._length

    def close(self) -> None:
        """Releases the schedule. Closing twice is fine."""
        self._handle, self._owner, self._run_buffers = 0, None, None

    def __enter__(self) -> PipeSchedule:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def _options(self) -> _raw.PipeScheduleOptions:
        options = _raw.PipeScheduleOptions()
        check(lib.dsc_pipe_schedule_options_init(byref(options), ctypes.sizeof(options)))
        options.name = string("name", self.name)
        options.stages, options.stage = self.stages, self.stage
        options.micro_batches, options.chunks = self.micro_batches, self.chunks
        return options

    def _walk(self, iteration: int) -> Iterator[PipeInstruction]:
        for raw in _instructions(self._handle):
            yield instruction_of(raw)
            if self._iteration != iteration:
                raise RuntimeError("another iteration over this schedule has begun; make one schedule for each")


def _instructions(handle: int) -> Iterator[_raw.PipeInstruction]:
    """The instructions that are left, all in the same C struct."""
    raw = _raw.PipeInstruction(struct_size=ctypes.sizeof(_raw.PipeInstruction))
    at, following = byref(raw), lib.dsc_pipe_schedule_next
    while check(following(handle, at)) != DONE:
        yield raw
