# In each step one rank ends without finalizing. The others wait for it, must get an error that names it, and go on
# without it: dscrun -n 5 --allow-failures 3 -- julia lost_ranks.jl
#
# Three ranks are killed, and one exits with code 0. So the job fails if a further rank does.

using LibDSC, Test

const SIGKILL = Cint(9)

kill_self() = ccall(:raise, Cint, (Cint,), SIGKILL)

"Fails to wait for the last rank of `comm`, which calls `finish` instead. Returns the communicator of the other ranks."
function lose_last(wait_for_it, finish, error_type, comm)
    lost = comm.size - 1
    LibDSC.barrier(comm)
    GC.gc(true)
    comm.rank == lost && finish()
    err = try wait_for_it(comm); nothing catch error; error end
    GC.gc(true)
    @test err isa error_type
    @test err.rank == lost && err.ranks == [lost]
    @test occursin("rank $lost", err.message)
    again = try allreduce!([1], +, comm) catch error; error end
    # A reducer has its own group, so that after its failure the communicator has not failed yet.
    @test again isa Union{LibDSC.RevokedError, error_type}
    @test occursin("rank $lost", again.message)
    return LibDSC.shrink(comm)
end

"Starts operations, and drops the works of all but the first while they run."
function wait_for_work(comm)
    work = iallreduce!(ones(100), +, comm)
    for _ in 1:5
        iallreduce!(ones(100), +, comm)
    end
    GC.gc(true)
    wait(work)
end

function wait_for_reducer(comm)
    params = (a = zeros(Float32, 300), b = zeros(Float32, 20))
    reducer = Reducer(comm, params; bucket_bytes = 100)
    LibDSC.barrier(comm)
    comm.rank == comm.size - 1 && kill_self()
    reduce!(reducer, params)
end

function wait_for_pipeline(comm)
    schedule = LibDSC.Schedule("1f1b"; stages = 2, stage = comm.rank, micro_batches = 4)
    between = [Float32 => (4, 2)]
    LibDSC.pipe_run(schedule, comm; inputs = comm.rank == 0 ? [] : between, outputs = comm.rank == 0 ? between : []) do call
        comm.rank == 1 && call.op === :forward && call.micro_batch == 1 && kill_self()
        GC.gc(true)
        return 0.0
    end
end

function lose_all_but_one()
    comm = LibDSC.init(; timeout = 200)
    comm = lose_last(comm -> allreduce!(ones(100), +, comm), kill_self, LibDSC.PeerDeadError, comm)
    comm = lose_last(wait_for_work, exit, LibDSC.PeerLeftError, comm)
    comm = lose_last(wait_for_reducer, () -> nothing, LibDSC.PeerDeadError, comm)
    comm = lose_last(wait_for_pipeline, () -> nothing, LibDSC.PeerDeadError, comm)
    @test comm.size == 1 && allreduce!([3], +, comm) == [3]
end

lose_all_but_one()
GC.gc(true) # finalizers of what has failed
LibDSC.finalize()
GC.gc(true)
println("rank 0 continued alone")
