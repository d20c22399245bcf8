# A task of the last rank throws; the other ranks wait for it and must get an error that names it: dscrun -n 3 -- julia throws.jl

using LibDSC, Test

struct Broken <: Exception end

function throw_or_wait(world)
    thrower = world.size - 1
    LibDSC.barrier(world)
    world.rank == thrower && wait(@async throw(Broken()))
    work = iallreduce!(ones(1000), +, world)
    err = try wait(work) catch error; error end
    @test err isa LibDSC.PeerLeftError && err.rank == thrower && err.ranks == [thrower]
    @test occursin("rank $thrower", err.message)
    # Later calls report the same cause.
    again = try allreduce!([1], +, world) catch error; error end
    @test again isa LibDSC.RevokedError && occursin("rank $thrower", again.message)
end

last_rank = ENV["RANK"] == string(parse(Int, ENV["WORLD_SIZE"]) - 1)
try
    LibDSC.init(throw_or_wait; timeout = 200)
    @test !last_rank
catch error
    # The ranks that got the failure cannot finalize together with the one that threw.
    @test last_rank ? error isa TaskFailedException && error.task.exception isa Broken : error isa DscError
end
@test !LibDSC.is_initialized()
println("rank $(ENV["RANK"]): done")
