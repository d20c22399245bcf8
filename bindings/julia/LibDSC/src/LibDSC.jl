"""
Communication between the ranks of a job: collectives, messages, groups, gradient reducers, pipelines.

    using LibDSC
    LibDSC.init() do world
        x = fill(Float32(world.rank), 4)
        allreduce!(x, +, world)
        println("rank \$(world.rank) of \$(world.size): \$x")
    end

Ranks are numbered from 0, as in MPI.jl. Names that end in `!` are exported; use the others with the module's name.
"""
module LibDSC

import FileWatching
import Serialization

include("library.jl")
include("structs.jl")
include("errors.jl")
include("owned.jl")
include("comm.jl")
include("groups.jl")
include("elements.jl")
include("ops.jl")
include("buffers.jl")
include("work.jl")
include("extensions.jl")
include("execute.jl")
include("collectives.jl")
include("rooted.jl")
include("variable.jl")
include("messages.jl")
include("functions.jl")
include("objects.jl")
include("log.jl")
include("options.jl")
include("words.jl")
include("handles.jl")
include("register.jl")
include("store.jl")
include("mesh.jl")
include("trees.jl")
include("tensors.jl")
include("reducer.jl")
include("reducer_features.jl")
include("sparse.jl")
include("uneven.jl")
include("sharded.jl")
include("sharded_step.jl")
include("sampler.jl")
include("schedule.jl")
include("pipe_run.jl")
include("tensor_map.jl")
include("precompile.jl")

export Comm, Work, IN_PLACE, DscError
export allreduce!, allgather!, reduce_scatter!, alltoall!, allgatherv!, reduce_scatterv!, alltoallv!
export Reducer, Sharded, mark_ready!
export bcast!, reduce!, gather!, scatter!, recv!
export iallreduce!, iallgather!, ireduce_scatter!, ialltoall!, iallgatherv!, ireduce_scatterv!, ialltoallv!
export ibcast!, ireduce!, igather!, iscatter!, irecv!

__init__() = Raw.load()

end
