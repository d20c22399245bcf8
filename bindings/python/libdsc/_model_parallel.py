"""The groups that Megatron-LM's initialize_model_parallel() makes, as communicators of this library."""

from __future__ import annotations

from typing import Optional, Sequence

from libdsc._arguments import Seconds, integer
from libdsc._communicator import Communicator
from libdsc._mesh import Mesh

Lists = list[list[int]]

# Groups of Mesh.plan() that need no communicator. With the accepted sizes each has only one rank, or equals another
# group.
_NOT_MADE = {"gtp", "ep_gtp", "tp_ep_pp_gtp", "hcp"}


class Layout:
    """Which ranks share which group. It only computes, and needs no running ranks.

    Args:
        world_size: number of ranks.
        tp, pp, cp, ep: sizes of tensor, pipeline, context and expert parallelism.
        etp: tensor parallel size of experts; None: the same as tp.
        order: the axes, the fastest-varying first.
        virtual_stages: parts of the model on every stage.
        cp_levels: sizes of hierarchical context-parallel groups, the fastest-varying level first.
        instances: number of instances of the distributed optimizer.
    """

    def __init__(
        self,
        world_size: int,
        tp: int = 1,
        pp: int = 1,
        cp: int = 1,
        ep: int = 1,
        etp: Optional[int] = None,
        order: str = "tp-cp-ep-dp-pp",
        virtual_stages: Optional[int] = None,
        cp_levels: Sequence[int] = (),
        instances: int = 1,
    ) -> None:
        sizes = {"tp": tp, "cp": cp, "ep": 1, "dp": -1, "pp": pp}
        self.dense = Mesh(sizes, order, world_size)
        self.experts = self.dense.experts(ep, etp)
        self.virtual_stages = None if virtual_stages is None else integer("virtual stages", virtual_stages, 1)
        plan = self.dense.plan(experts=self.experts, instances=instances, virtual_stages=virtual_stages or 1)
        self.groups: dict[str, Lists] = {}  # in the order in which all ranks make them
        for name, ranks in plan:
            if name not in _NOT_MADE:
                self.groups.setdefault(name, []).append(ranks)
        for level, lists in enumerate(self.dense.levels("cp", cp_levels) if cp_levels else []):
            self.groups[f"hcp_{level}"] = lists

    def ranks(self, name: str, rank: int) -> Optional[list[int]]:
        """Returns the group of this name that contains a rank, or None."""
        return next((ranks for ranks in self.groups.get(name, []) if rank in ranks), None)


class ModelParallel:
    """The communicators of a layout. Making them is collective: all ranks of the parent make them in the same order.

    Names with the same groups share a communicator.
    """

    def __init__(self, parent: Communicator, layout: Layout, timeout: Optional[Seconds]) -> None:
        self.parent, self.layout, self.rank = parent, layout, parent.rank
        self.virtual_rank: Optional[int] = None if layout.virtual_stages is None else 0
        self._comms: dict[str, Optional[Communicator]] = {}
        try:
            self._make_all(timeout)
        except BaseException:
            self.close()
            raise

    def _make_all(self, timeout: Optional[Seconds]) -> None:
        made: list[tuple[Lists, str]] = []
        for name, lists in self.layout.groups.items():
            known = next((other for found, other in made if found == lists), None)
            if known is None:
                made.append((lists, name))
                self._comms[name] = self._make(name, lists, timeout)
            else:
                self._comms[name] = self._comms[known]

    def _make(self, name: str, lists: Lists, timeout: Optional[Seconds]) -> Optional[Communicator]:
        color = next((index for index, ranks in enumerate(lists) if self.rank in ranks), None)
        place = 0 if color is None else lists[color].index(self.rank)
        return self.parent.split(color, place, name, timeout)

    def comm(self, name: str) -> Optional[Communicator]:
        """Returns the communicator with this name; None if this rank is in no group of that name."""
        return self._comms.get(name)

    @property
    def is_open(self) -> bool:
        """Whether the world of these communicators still exists."""
        return bool(self.parent._handle)

    def close(self) -> None:
        """Closes all communicators."""
        for comm in {id(comm): comm for comm in self._comms.values() if comm is not None}.values():
            comm.close()
        self._comms.clear()
