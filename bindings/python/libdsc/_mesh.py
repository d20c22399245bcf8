"""Meshes: ranks in a grid of named axes, the groups along these axes, and communicators for the groups."""

from __future__ import annotations

import ctypes
import math
import weakref
from ctypes import byref, c_char_p, c_int32, c_size_t, c_void_p
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Union

from libdsc import _raw, errors
from libdsc._arguments import INT32, Seconds, integer, integers, optional_string, string
from libdsc._communicator import Communicator, group_options
from libdsc._library import check, lib, list_of, text_of
from libdsc._start import world
from libdsc._work import Work

_ENDS = {"first": 0, "last": -1}


class MeshGroup(NamedTuple):
    """One group of Mesh.plan()."""

    name: str
    ranks: list[int]


class Mesh:
    """Ranks in a grid of named axes. A mesh gives the position of each rank, and the ranks of each group.

        mesh = dsc.Mesh({"tp": 2, "cp": 1, "ep": 1, "dp": 2, "pp": 2}, order="tp-cp-ep-dp-pp")
        mesh.groups("tp-dp")  # [[0, 1, 2, 3], [4, 5, 6, 7]]
        mesh.broadcast_from("pp", "last", x)

    A mesh is immutable and only computes; any thread may use it. Only comm() and broadcast_from() need running ranks,
    as many as the mesh has. Call these two from one thread at a time. Arguments name several axes as in "tp-dp", in any
    order. The ranks of a group are in ascending order.

    Args:
        axes: sizes by name. One size may be -1: it is computed from world_size.
        order: names of axes, the fastest-varying first, as in Megatron-LM; axes of size 1 may be left out. If not
            given, the axes are in the order of the dict with the last one fastest, as in DeepSpeed.
        world_size: the required product of the sizes.
        rank_offset: the first rank.
    """

    __slots__ = ("axes", "order", "size", "rank_offset", "_handle", "_comms", "_release", "__weakref__")

    axes: dict[str, int]  # sizes, in the order in which they were listed
    order: str  # the axis that varies fastest comes first
    size: int  # number of ranks
    rank_offset: int

    def __init__(
        self,
        axes: Mapping[str, int],
        order: Optional[str] = None,
        world_size: Optional[int] = None,
        rank_offset: int = 0,
    ) -> None:
        names = [string("a name of axes", name) for name in axes]
        sizes = integers("sizes", list(axes.values()), *INT32)
        options = _raw.MeshOptions()
        check(lib.dsc_mesh_options_init(byref(options), ctypes.sizeof(options)))
        options.order = optional_string("order", order)
        options.world_size = 0 if world_size is None else integer("world_size", world_size, 1)
        options.rank_offset = integer("rank_offset", rank_offset)
        made = c_void_p()
        room = max(1, len(names))
        check(
            lib.dsc_mesh_create(
                (c_char_p * room)(*names), (c_int32 * room)(*sizes), len(names), byref(options), byref(made)
            )
        )
        self._take(made, list(axes), rank_offset)

    def _take(self, made: c_void_p, names: list[str], rank_offset: int) -> None:
        assert made.value is not None
        self._handle = made.value
        self._release = weakref.finalize(self, lib.dsc_mesh_destroy, made.value)
        self._comms: dict[tuple[int, frozenset[str]], Communicator] = {}
        self.axes = {name: _number(lib.dsc_mesh_axis_size, self._handle, name.encode()) for name in names}
        self.order = text_of(lib.dsc_mesh_order, self._handle)
        self.size = _number(lib.dsc_mesh_size, self._handle)
        self.rank_offset = rank_offset

    def __repr__(self) -> str:
        return f"<libdsc.Mesh {self.axes}, order {self.order!r}>"

    @staticmethod
    def default_grid(world_size: int) -> Mesh:
        """Returns DeepSpeed's default mesh.

        The prime factors of world_size go in turn to the axes "pipe" and "data".
        """
        factors = _prime_factors(integer("world_size", world_size, 1))
        return Mesh({"pipe": math.prod(factors[::2]), "data": math.prod(factors[1::2])})

    def experts(self, ep: int, expert_tp: Optional[int] = None) -> Mesh:
        """Returns the mesh of the experts for this mesh of the dense layers: the same ranks, order and pp groups.

        Args:
            ep: expert parallel size. If it is above 1, this mesh needs an axis "ep" of size 1, to define its place in
                the order.
            expert_tp: tensor parallel size of experts; None: as in this mesh. cp is 1, and dp takes the remaining
                ranks.
        """
        made = c_void_p()
        tp = 0 if expert_tp is None else integer("expert_tp", expert_tp, 1)
        check(lib.dsc_mesh_create_experts(self._handle, integer("ep", ep), tp, byref(made)))
        mesh = object.__new__(Mesh)
        mesh._take(made, list(self.axes), self.rank_offset)
        return mesh

    # ---- ranks and coordinates ---------------------------------------------------------------------------------

    def coord(self, rank: int) -> dict[str, int]:
        """Returns the coordinates of a rank, by axis."""
        coords = (c_int32 * len(self.axes))()
        check(lib.dsc_mesh_coord(self._handle, integer("rank", rank), coords, len(coords)))
        return dict(zip(self.axes, coords))

    def rank(self, **coords: int) -> int:
        """Returns the rank with these coordinates. There must be one for every axis."""
        missing = [name for name in self.axes if name not in coords]
        if missing:
            raise ValueError(f"the coordinate of {', '.join(missing)} is missing; expected one coordinate for every axis")
        listed = self._coords(coords)
        return _number(lib.dsc_mesh_rank, self._handle, listed, len(listed))

    def filter(self, **coords: int) -> list[int]:
        """Returns all ranks with these coordinates, in ascending order.

        Axes that are not named may have any coordinate.
        """
        listed = self._coords(coords)
        ranks: list[int] = list_of(c_int32, lib.dsc_mesh_filter, self._handle, listed, len(listed))
        return ranks

    def neighbor(self, rank: int, axis: str, steps: int = 1) -> int:
        """Returns the rank this many steps further along an axis, which wraps around."""
        rank, steps = integer("rank", rank), integer("steps", steps)
        return _number(lib.dsc_mesh_neighbor, self._handle, rank, string("axis", axis), steps)

    def peer(self, rank: int, axis: str, coord: int) -> int:
        """Returns the rank at a position of an axis, with the other coordinates of rank. -1 is the last position."""
        rank, coord = integer("rank", rank), integer("coord", coord)
        return _number(lib.dsc_mesh_peer, self._handle, rank, string("axis", axis), coord)

    def first(self, rank: int, axis: str) -> int:
        """Returns the first rank along an axis, with the other coordinates of rank."""
        return self.peer(rank, axis, 0)

    def last(self, rank: int, axis: str) -> int:
        """Returns the last rank along an axis, with the other coordinates of rank."""
        return self.peer(rank, axis, -1)

    def rank_name(self, rank: int, omit: Sequence[str] = (), inner: str = "_", outer: str = "-") -> str:
        """Returns DeepSpeed's name of a rank, such as "pipe_00-data_01".

        Args:
            rank: rank of the mesh.
            omit: axes to leave out; axes that the mesh lacks are ignored.
            inner: separator between an axis and its number.
            outer: separator between axes.
        """
        words = [string("omit", "-".join(omit)), string("inner", inner), string("outer", outer)]
        number = integer("rank", rank)
        return text_of(lib.dsc_mesh_rank_name, self._handle, number, *words)

    # ---- groups ------------------------------------------------------------------------------------------------

    def groups(self, axes: str) -> list[list[int]]:
        """Returns all groups along some axes, such as "tp-dp"."""
        named = string("axes", axes)
        return _lists(self, lambda *room: lib.dsc_mesh_groups(self._handle, named, *room))

    def group(self, rank: int, axes: str) -> list[int]:
        """Returns the group along some axes that contains a rank."""
        given = (self._handle, integer("rank", rank), string("axes", axes))
        ranks: list[int] = list_of(c_int32, lambda *room: lib.dsc_mesh_group(*given, *room, None, None))
        return ranks

    def levels(self, axes: str, sizes: Sequence[int]) -> list[list[list[int]]]:
        """Returns Megatron-LM's hierarchical groups.

        Each group along some axes is divided into levels of smaller groups.

        Args:
            axes: such as "cp".
            sizes: sizes of the groups of each level, the fastest-varying level first. Their product is the size of a
                group.
        """
        named, box = string("axes", axes), (c_int32 * len(sizes))(*integers("sizes", sizes, *INT32))

        def level(number: int) -> list[list[int]]:
            return _lists(self, lambda *room: lib.dsc_mesh_levels(self._handle, named, box, len(box), number, *room))

        return [level(number) for number in range(max(1, len(box)))]

    def members(self, axes: str, positions: Sequence[int]) -> list[list[int]]:
        """Returns, for each group along some axes, the group of its members at these positions. -1: the last one."""
        named, listed = string("axes", axes), (c_int32 * len(positions))(*integers("positions", positions, *INT32))
        return _lists(self, lambda *room: lib.dsc_mesh_members(self._handle, named, listed, len(listed), *room))

    def embedding_groups(self, axis: str = "pp") -> list[list[int]]:
        """Returns the first and the last rank of each pipeline, which share the word embeddings."""
        return self.members(axis, (0, -1))

    def position_embedding_groups(self, axis: str = "pp") -> list[list[int]]:
        """Returns the first rank of each pipeline, which has the position embeddings."""
        return self.members(axis, (0,))

    def hybrid_groups(self, axes: str = "dp-cp") -> dict[int, list[list[int]]]:
        """Returns the groups of hybrid context parallelism by size, for the sizes 2, 4 and so on.

        Groups of each size are consecutive parts of the groups along these axes.
        """
        whole = len(self.group(self.rank_offset, axes))
        sizes = [2**power for power in range(1, whole.bit_length() - 1)]
        for size in sizes or [min(2, whole)]:
            if whole % size != 0:
                raise errors.InvalidArgError(f"a group of axes {axes!r} has {whole} ranks; expected a multiple of {size}")
        return {size: self.levels(axes, (size, whole // size))[0] for size in sizes}

    def plan(
        self,
        style: str = "megatron",
        rank: Optional[int] = None,
        experts: Optional[Mesh] = None,
        cp_levels: Sequence[int] = (),
        instances: int = 1,
        hybrid: bool = False,
        virtual_stages: int = 1,
    ) -> list[MeshGroup]:
        """Returns every group that a framework makes from this mesh, in the order in which all ranks make them.

        Args:
            style: "megatron" (initialize_model_parallel) or "deepspeed" (PipelineParallelGrid; axes pipe, data, model).
            rank: returns only the groups that contain this rank.
            experts: the mesh from experts(); None: one with ep 1.
            cp_levels: sizes of hierarchical cp groups, the fastest-varying level first.
            instances: number of instances of the distributed optimizer.
            hybrid: True includes the dp x cp groups of hybrid_groups().
            virtual_stages: parts of the model on every pipeline stage; more than one needs pp above 1.
        """
        options = _raw.MeshPlanOptions()
        check(lib.dsc_mesh_plan_options_init(byref(options), ctypes.sizeof(options)))
        options.style = string("style", style)
        options.experts = None if experts is None else experts._handle
        levels = (c_int32 * max(1, len(cp_levels)))(*integers("cp_levels", cp_levels, *INT32))
        options.cp_levels, options.n_cp_levels = levels, len(cp_levels)
        options.instances = integer("instances", instances)
        options.hybrid = int(bool(hybrid))
        options.virtual_stages = integer("virtual_stages", virtual_stages)
        options.rank = -1 if rank is None else integer("rank", rank, 0)
        n_groups, n_ranks = c_size_t(), c_size_t()
        ends = (byref(n_groups), byref(n_ranks))
        check(lib.dsc_mesh_plan(self._handle, byref(options), None, None, 0, None, 0, *ends))
        names, starts = (c_char_p * n_groups.value)(), (c_size_t * (n_groups.value + 1))()
        ranks = (c_int32 * n_ranks.value)()
        room = (names, starts, n_groups.value, ranks, n_ranks.value)
        check(lib.dsc_mesh_plan(self._handle, byref(options), *room, *ends))
        texts = [(name or b"").decode() for name in names]
        return [MeshGroup(name, ranks[starts[g] : starts[g + 1]]) for g, name in enumerate(texts)]

    # ---- communicators -----------------------------------------------------------------------------------------

    def comm(
        self,
        axes: str,
        comm: Optional[Communicator] = None,
        name: Optional[str] = None,
        timeout: Optional[Seconds] = None,
    ) -> Communicator:
        """Returns the communicator of this rank's group along some axes.

        It is made once for each set of axes and each parent, and then kept. The first call is collective over the
        parent; later calls are local. So all ranks must make the calls in the same order. Only the first call uses name
        and timeout.

        Args:
            axes: such as "tp-dp".
            comm: the parent, as large as the mesh; None: the world.
            name: the name in errors; by default the axes.
            timeout: seconds that every operation may take; by default the parent's.
        """
        parent = world() if comm is None else comm
        key = (parent._handle, frozenset(axes.split("-")))
        known = self._comms.get(key)
        if known is not None and known._handle:
            return known
        made = parent._make_group(dsc_mesh_comm, (self._handle, string("axes", axes)), group_options(name, timeout))
        assert made is not None
        self._comms[key] = made
        return made

    def broadcast_from(
        self,
        axes: str,
        position: Union[str, int],
        x: Any,
        comm: Optional[Communicator] = None,
        async_op: bool = False,
        dtype: Any = None,
        *,
        stream: Any = None,
    ) -> Optional[Work]:
        """Copies the x of one member of each group along some axes into the x of all its members.

        Args:
            axes: such as "pp".
            position: "first", "last", or a number; a negative one counts from the end.
            x, async_op, dtype, stream: as in Communicator.broadcast().
            comm: the parent, as in comm().
        """
        group, root = self._group_and_root(axes, position, comm)
        return group.broadcast(x, root, async_op=async_op, dtype=dtype, stream=stream)

    def broadcast_array_from(
        self,
        axes: str,
        position: Union[str, int],
        x: Any = None,
        comm: Optional[Communicator] = None,
        dtype: Any = None,
        *,
        empty: Optional[Callable[[tuple[int, ...], str], Any]] = None,
        stream: Any = None,
    ) -> Any:
        """Returns the x of one member of each group along some axes on all its members; these need not know its size.

        Args:
            axes, position, comm: as in broadcast_from().
            x, dtype, empty, stream: as in Communicator.broadcast_array().
        """
        group, root = self._group_and_root(axes, position, comm)
        return group.broadcast_array(x, root, dtype, empty=empty, stream=stream)

    def _group_and_root(
        self, axes: str, position: Union[str, int], comm: Optional[Communicator]
    ) -> tuple[Communicator, int]:
        if isinstance(position, str) and position not in _ENDS:
            raise ValueError(f"position is {position!r}; expected 'first', 'last' or a number")
        group = self.comm(axes, comm)
        at = _ENDS[position] if isinstance(position, str) else integer("position", position, -group.size, group.size - 1)
        return group, at % group.size

    def _coords(self, coords: Mapping[str, int]) -> Any:
        """Returns a C array with a coordinate per axis; -1 for axes that are not named."""
        for name in coords:
            if name not in self.axes:
                _number(lib.dsc_mesh_axis_size, self._handle, string("an axis", name))  # raises the library's error
        given = {name: integer(name, value, 0, self.axes[name] - 1) for name, value in coords.items()}
        return (c_int32 * len(self.axes))(*(given.get(name, -1) for name in self.axes))


def dsc_mesh_comm(comm: int, mesh: int, *rest: Any) -> int:
    """Calls lib.dsc_mesh_comm() with the communicator as the first argument, as in all other functions."""
    code: int = lib.dsc_mesh_comm(mesh, comm, *rest)
    return code


def _prime_factors(number: int) -> list[int]:
    """Returns the prime factors of a number in ascending order."""
    factors, factor = [], 2
    while factor * factor <= number:
        if number % factor == 0:
            factors.append(factor)
            number //= factor
        else:
            factor += 1
    return factors + [number] * (number > 1)


def _number(function: Any, *arguments: Any) -> int:
    number = c_int32()
    check(function(*arguments, byref(number)))
    return number.value


def _lists(mesh: Mesh, read: Callable[..., int]) -> list[list[int]]:
    """Calls a function that ends with (ranks, capacity, &n_groups, &group_size); returns a list of ranks per group."""
    n_groups, size = c_size_t(), c_size_t()
    ranks = (c_int32 * mesh.size)()
    check(read(ranks, len(ranks), byref(n_groups), byref(size)))
    return [ranks[start : start + size.value] for start in range(0, n_groups.value * size.value, size.value)]
