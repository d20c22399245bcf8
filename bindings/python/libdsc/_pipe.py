"""Pipeline schedules: what each stage computes, sends and receives, and in which order."""

from __future__ import annotations

import ctypes
import itertools
import operator
import sys
from ctypes import byref, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence

from libdsc import _raw, errors
from libdsc._arguments import brief, integer, string
from libdsc._library import OnlyOne, Shared, check, lib, list_of, text_of
from libdsc._pipe_arrays import RunShapes, Shape
from libdsc._pipe_costs import costs_of

DONE = int(_raw.Result.DONE)
NONE = -1

_OPS = {int(op): op.name.lower() for op in _raw.PipeOp}
_NUMBERS = {name: number for number, name in _OPS.items()}


class PipeInstruction(NamedTuple):
    """One instruction of a stage. Fields that do not apply to its op are None.

    op is "load_micro_batch", "forward", "backward", "backward_input", "backward_weight", "send_activation",
    "recv_activation", "send_grad", "recv_grad", "reduce_tied_grads", "reduce_grads", "optimizer_step" or "overlap".
    """

    step: int  # 0 to steps - 1, in ascending order
    op: str
    micro_batch: Optional[int]
    chunk: Optional[int]  # part of the model on this stage
    # Index of the buffer that holds the micro-batch on this stage, 0 to buffers - 1.
    buffer: Optional[int]
    peer: Optional[int]  # the stage that receives or sends the message


class PipeStep(NamedTuple):
    """What a step computes. The micro-batch is None if this stage only waits in the step."""

    micro_batch: Optional[int]
    is_forward: bool


def instruction_of(raw: Any) -> PipeInstruction:
    """Converts an instruction from the C struct."""
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


class PipeCompute(NamedTuple):
    """One operation in the order of a stage. op is None for a step in which the stage is idle."""

    op: Optional[str]
    chunk: Optional[int] = None
    micro_batch: Optional[int] = None
    overlaps: bool = False  # overlaps with the next operation


class _Handle(OnlyOne):
    """Owns a schedule of the library. Arrays over the memory of its runs also keep this object alive."""

    __slots__ = ("value", "__weakref__")

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.value = 0
        made = c_void_p()
        check(make(byref(made)))
        assert made.value is not None
        self.value = made.value

    def __del__(self) -> None:
        try:
            lib.dsc_pipe_schedule_destroy(self.value)
        except Exception:  # at interpreter shutdown
            pass


class _NoStageError(errors.StateError, AttributeError):
    """Raised for attributes that only a schedule of one stage has. As an AttributeError it makes hasattr() False."""


class PipeSchedule(Shared):
    """A pipeline schedule, of one stage or of the whole pipeline.

        for instruction in dsc.PipeSchedule("1f1b", stages=4, stage=1, micro_batches=8):
            print(instruction.step, instruction.op, instruction.micro_batch)
        print(dsc.PipeSchedule("zb_v", stages=4, micro_batches=8))

    With a stage, you can iterate over its instructions any number of times. They are generated one by one. A new
    iteration ends the previous one. len() takes as long as an iteration, because it counts the instructions; steps is
    fast. Without a stage there are no instructions. orders(), write() and pictures always show the whole pipeline.
    close() is local.

    Args:
        name: "deepspeed_train", "deepspeed_inference", "data_parallel", "gpipe", "1f1b", "interleaved_1f1b",
            "looped_bfs", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dualpipe_v" or "auto".
        stages: number of stages; each runs on one rank.
        stage: the stage that this schedule is for, 0 to stages - 1; None: the whole pipeline.
        micro_batches: number of micro-batches in a batch; it may be less than stages.
        chunks: parts of the model on every stage; None: the schedule's default.
        micro_batch_group: in interleaved_1f1b, the number of micro-batches that run through a chunk before the next
            one.
        forward_only: True: no backward passes.
        merge_backward: True merges the two halves of a backward pass if one directly follows the other.
        messages: "when_needed", with the fewest buffers, or "at_once", as PyTorch does it.
    """

    __slots__ = (
        "name",
        "stages",
        "stage",
        "micro_batches",
        "chunks",
        "micro_batch_group",
        "placement",
        "forward_only",
        "messages",
        "_costs",
        "_owner",
        "_handle",
        "_iteration",
        "_length",
        "_run_buffers",
        "__weakref__",
    )

    name: str
    stages: int
    stage: Optional[int]
    micro_batches: int
    chunks: int
    micro_batch_group: Optional[int]  # None if the schedule does not use it
    placement: str  # "loop", "zigzag" or "apart"
    forward_only: bool
    messages: str  # "when_needed" or "at_once"

    def __init__(
        self,
        name: str,
        stages: int,
        stage: Optional[int] = None,
        micro_batches: Optional[int] = None,
        chunks: Optional[int] = None,
        *,
        micro_batch_group: Optional[int] = None,
        forward_only: bool = False,
        merge_backward: bool = False,
        messages: str = "when_needed",
    ) -> None:
        if micro_batches is None:
            text = "micro_batches is missing; expected micro_batches=M, or M as the fourth argument, after name, stages and stage"
            if stage is not None:
                text += f"; for the schedule of the whole pipeline, call PipeSchedule({name!r}, {stages}, micro_batches={stage or 'M'})"
            raise TypeError(text)
        options = schedule_options(stage, merge_backward, messages)
        options.name = string("name", name)
        options.stages = integer("stages", stages)
        options.micro_batches = integer("micro_batches", micro_batches)
        options.chunks = _given("chunks", chunks)
        options.micro_batch_group = _given("micro_batch_group", micro_batch_group)
        options.forward_only = int(forward_only)
        self._take(_Handle(lambda made: lib.dsc_pipe_schedule_create(byref(options), made)))

    @classmethod
    def custom(
        cls,
        orders: Sequence[Sequence[Any]],
        micro_batches: int,
        chunks: int = 1,
        *,
        stage: Optional[int] = None,
        placement: str = "loop",
        name: str = "custom",
        forward_only: bool = False,
        merge_backward: bool = False,
        messages: str = "when_needed",
    ) -> PipeSchedule:
        """Makes a schedule from the order in which each stage computes.

        orders has a list for each stage. Its entries are PipeCompute objects, or tuples of operation, chunk and
        micro-batch, such as ("forward", 0, 3). None means a step in which the stage is idle. Orders that cannot run
        raise InvalidArgError, which names the stage, the operation, and the stages that wait for each other.
        """
        options = schedule_options(stage, merge_backward, messages)
        options.name = string("name", name)
        options.stages = len(orders)
        options.micro_batches = integer("micro_batches", micro_batches)
        options.chunks = integer("chunks", chunks, 1)
        options.placement = _word("placement", placement, _raw.PipePlacement)
        options.forward_only = int(forward_only)
        flat = [_compute(f"orders[{s}][{k}]", it) for s, order in enumerate(orders) for k, it in enumerate(order)]
        operations = (_raw.PipeCompute * max(1, len(flat)))(*flat)
        starts = (c_size_t * (len(orders) + 1))(0, *itertools.accumulate(len(order) for order in orders))
        return cls._of(
            _Handle(lambda made: lib.dsc_pipe_schedule_create_custom(byref(options), operations, starts, made))
        )

    @classmethod
    def read(
        cls,
        text: str,
        format: str,
        *,
        stage: Optional[int] = None,
        merge_backward: bool = False,
        messages: str = "when_needed",
    ) -> PipeSchedule:
        """Makes a schedule from text in the format "pytorch", "pytorch_comms", "deepspeed", "megatron" or "json".

        An error in the text raises InvalidArgError with line and column.
        """
        options = schedule_options(stage, merge_backward, messages)
        data = string("text", text)
        number = _word("format", format, _raw.PipeFormat)
        return cls._of(
            _Handle(lambda made: lib.dsc_pipe_schedule_import(data, len(data), number, byref(options), made))
        )

    @classmethod
    def _of(cls, owner: _Handle) -> PipeSchedule:
        schedule = cls.__new__(cls)
        schedule._take(owner)
        return schedule

    def _take(self, owner: _Handle) -> None:
        info = _raw.PipeScheduleInfo(struct_size=ctypes.sizeof(_raw.PipeScheduleInfo))
        check(lib.dsc_pipe_schedule_info(owner.value, byref(info)))
        self.name = text_of(lib.dsc_pipe_schedule_name, owner.value)
        self.stages, self.stage = info.stages, _or_none(info.stage)
        self.micro_batches, self.chunks = info.micro_batches, info.chunks
        self.placement = _raw.PipePlacement(info.placement).name.lower()
        self.micro_batch_group = info.micro_batch_group or None
        self.forward_only = bool(info.forward_only)
        self.messages = _raw.PipeMessages(info.messages).name.lower()
        self._costs: dict[str, Any] = {}  # the costs that find_schedule() used
        self._owner: Optional[_Handle] = owner
        self._handle = owner.value
        self._iteration = 0
        self._length: Optional[int] = None
        self._run_buffers: Any = None  # the arrays of earlier runs, for the next run

    def __repr__(self) -> str:
        state = "" if self._handle else ", closed"
        place = f"{self.stages} stages" if self.stage is None else f"stage {self.stage} of {self.stages}"
        return f"<libdsc.PipeSchedule {self.name!r}, {place}, {self.micro_batches} micro-batches{state}>"

    @property
    def steps(self) -> int:
        """The number of steps. Only a schedule of one stage has it."""
        self._require_stage("steps")
        steps = c_int64()
        check(lib.dsc_pipe_schedule_steps(self._handle, byref(steps)))
        return steps.value

    @property
    def buffers(self) -> int:
        """The number of micro-batches that this stage must hold at the same time.

        Only a schedule of one stage has it.
        """
        self._require_stage("buffers")
        buffers = c_int32()
        check(lib.dsc_pipe_schedule_buffers(self._handle, byref(buffers)))
        return buffers.value

    def _require_stage(self, name: str) -> None:
        if self._handle and self.stage is None:
            raise _NoStageError(f"{name} needs the schedule of one stage, but this schedule covers the whole pipeline; call at_stage(i) first")

    def step(self, step: int) -> PipeStep:
        """Returns what this stage computes in a step; steps are numbered 0 to steps - 1."""
        if not 0 <= operator.index(step) < self.steps:
            raise IndexError(f"there is no step {step}; this schedule has {self.steps} steps")
        micro_batch, is_forward = c_int32(), c_int32()
        check(lib.dsc_pipe_schedule_step(self._handle, step, byref(micro_batch), byref(is_forward)))
        return PipeStep(_or_none(micro_batch.value), bool(is_forward.value))

    def __iter__(self) -> Iterator[PipeInstruction]:
        check(lib.dsc_pipe_schedule_reset(self._handle))
        self._iteration += 1
        return self._walk(self._iteration)

    def __len__(self) -> int:
        if self._length is None:
            other = self.at_stage(self.stage)  # a second schedule, so that an iteration in progress is not disturbed
            self._length = sum(1 for _ in _instructions(other._handle))
        return self._length

    def close(self) -> None:
        """Releases the schedule. May be called twice."""
        self._handle, self._owner, self._run_buffers = 0, None, None

    def __enter__(self) -> PipeSchedule:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def at_stage(self, stage: Optional[int]) -> PipeSchedule:
        """Returns the schedule of another stage of the same pipeline; None: that of the whole pipeline."""
        number = NONE if stage is None else integer("stage", stage, 0)
        other = self._of(_Handle(lambda made: lib.dsc_pipe_schedule_at_stage(self._handle, number, made)))
        other._costs = self._costs
        return other

    def _leave_kept_arrays(self) -> None:
        """Leaves the memory of earlier runs to arrays that the program still holds.

        Later runs then use other memory.
        """
        self._run_buffers = None
        # The number of references if only this schedule and the call of getrefcount() refer to the owner.
        alone = 2
        if self._owner is not None and self.stage is not None and sys.getrefcount(self._owner) > alone:
            self._take_over(self.at_stage(self.stage))

    def _take_over(self, other: PipeSchedule) -> None:
        self._owner, self._handle = other._owner, other._handle
        self._iteration += 1  # ends iterations that are in progress

    def run_bytes(
        self,
        inputs: Sequence[tuple[Shape, Any]] = (),
        outputs: Sequence[tuple[Shape, Any]] = (),
        variable_shapes: bool = False,
    ) -> int:
        """Returns the bytes that pipe_run() needs in memory= with these arguments."""
        options, size = RunShapes(inputs, outputs, variable_shapes).options, c_size_t()
        check(lib.dsc_pipe_run_bytes(self._handle, byref(options), byref(size)))
        self._iteration += 1  # ends iterations that are in progress
        return size.value

    def order(self, stage: int) -> list[PipeCompute]:
        """Returns the order in which a stage of the pipeline computes."""
        return [
            PipeCompute(_OPS[it.op], it.chunk, it.micro_batch, bool(it.overlaps)) if it.op else PipeCompute(None)
            for it in list_of(
                _raw.PipeCompute, lib.dsc_pipe_schedule_order, self._handle, integer("stage", stage), 0
            )
        ]

    def orders(self) -> list[list[PipeCompute]]:
        """Returns the orders of all stages."""
        return [self.order(stage) for stage in range(self.stages)]

    def write(self, format: str) -> str:
        """Returns the whole pipeline as text: "pytorch", "pytorch_comms", "deepspeed", "megatron" or "json"."""
        number = _word("format", format, _raw.PipeFormat)
        return text_of(lib.dsc_pipe_schedule_export, self._handle, number)

    def draw(self, picture: str = "text", **costs: Any) -> str:
        """Returns a picture of the whole pipeline: "text", "color", "svg" or "perfetto".

        costs are as in simulate_pipeline(). If none are given, a schedule from find_schedule() is drawn with the costs
        that find_schedule() got.
        """
        number = _word("picture", picture, _raw.PipePicture)
        raw, keep = costs_of(**(costs or self._costs))
        text = text_of(lib.dsc_pipe_draw, self._handle, byref(raw), number)
        del keep
        return text

    def __str__(self) -> str:
        try:
            return self.draw() if self._handle else repr(self)
        except errors.OverflowError:  # the picture is too large
            return repr(self)

    def _repr_svg_(self) -> str:
        return self.draw("svg")

    def _walk(self, iteration: int) -> Iterator[PipeInstruction]:
        for raw in _instructions(self._handle):
            yield instruction_of(raw)
            if self._iteration != iteration:
                raise RuntimeError("a second loop over this schedule started before this loop ended; expected one PipeSchedule for each loop")


def schedule_options(stage: Optional[int], merge_backward: bool, messages: str) -> _raw.PipeScheduleOptions:
    """Returns default options, with the choices that every kind of schedule has."""
    options = _raw.PipeScheduleOptions()
    check(lib.dsc_pipe_schedule_options_init(byref(options), ctypes.sizeof(options)))
    options.stage = NONE if stage is None else integer("stage", stage, 0)
    options.merge_backward = int(merge_backward)
    options.messages = _word("messages", messages, _raw.PipeMessages)
    return options


def _given(argument: str, value: Optional[int]) -> int:
    """Checks an optional number of 1 or more. Returns 0 for None, because the library's default is 0."""
    return 0 if value is None else integer(argument, value, 1)


def _word(argument: str, value: str, numbers: Any) -> int:
    """Returns the number of an enumerator, given its name."""
    known = {it.name.lower(): int(it) for it in numbers}
    if value not in known:
        raise ValueError(f"{argument} is {brief(value)}; expected one of {', '.join(map(repr, known))}")
    return known[value]


def _compute(argument: str, value: Any) -> Any:
    """Converts an operation of a user-defined order to the C struct."""
    if value is None or (isinstance(value, PipeCompute) and value.op is None):
        return _raw.PipeCompute(0, NONE, NONE, 0)
    if not isinstance(value, (tuple, list)) or len(value) < 3:
        raise TypeError(f"{argument} is {brief(value)}; expected (operation, chunk, micro-batch), such as ('forward', 0, 3)")
    op, chunk, micro_batch, *overlaps = value
    if op not in _NUMBERS:
        raise ValueError(f"{argument} is {brief(op)}; expected the name of an operation, such as 'forward'")
    place = integer(f"{argument}[1]", chunk), integer(f"{argument}[2]", micro_batch)
    return _raw.PipeCompute(_NUMBERS[op], *place, int(bool(overlaps and overlaps[0])))


def _instructions(handle: int) -> Iterator[_raw.PipeInstruction]:
    """Yields the remaining instructions. Each step overwrites the same C struct."""
    raw = _raw.PipeInstruction(struct_size=ctypes.sizeof(_raw.PipeInstruction))
    at, following = byref(raw), lib.dsc_pipe_schedule_next
    while check(following(handle, at)) != DONE:
        yield raw
