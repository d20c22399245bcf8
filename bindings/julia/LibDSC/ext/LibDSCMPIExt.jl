# Programs that use MPI.jl: its processes as ranks, and its names in operations.

module LibDSCMPIExt

import LibDSC
import MPI

"""
    LibDSC.init(comm::MPI.Comm; options...) -> Comm

Joins the ranks of an MPI communicator into one world. MPI gives ranks, sizes and a common job id; between hosts,
`init_method` or the environment says where the ranks meet, as always.
"""
function LibDSC.init(comm::MPI.Comm; options...)
    host = MPI.Comm_split_type(comm, MPI.COMM_TYPE_SHARED, MPI.Comm_rank(comm))
    job = MPI.bcast("mpi-$(getpid())-$(time_ns())", 0, comm)
    return LibDSC.init(; rank = MPI.Comm_rank(comm), world_size = MPI.Comm_size(comm),
        local_rank = MPI.Comm_rank(host), job_id = job, options...)
end

const OPERATIONS = (MPI.SUM => +, MPI.PROD => *, MPI.MAX => max, MPI.MIN => min, MPI.BAND => &, MPI.BOR => |,
    MPI.BXOR => xor)

function LibDSC.native(op::MPI.Op, type::Type)
    for (known, operation) in OPERATIONS
        op === known && return LibDSC.native(operation, type)
    end
    return nothing
end

LibDSC.in_place(::typeof(MPI.IN_PLACE)) = true
LibDSC.pair(::typeof(MPI.IN_PLACE), recv, expected) = LibDSC.pair(LibDSC.IN_PLACE, recv, expected)

end
