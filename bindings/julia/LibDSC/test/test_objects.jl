# Objects by Serialization.

import Serialization

struct NotSerializable end
Serialization.serialize(::Serialization.AbstractSerializer, ::NotSerializable) = error("holds a socket")

function test(world)
    rank, n = world.rank, world.size
    object = (name = "model", weights = Dict(:a => [1.0, 2.0], :b => zeros(2, 2)))
    @test LibDSC.bcast(rank == n - 1 ? object : nothing, world; root = n - 1) == object
    @test LibDSC.allgather_object("x"^rank, world) == ["x"^r for r in 0:n - 1]
    closure = LibDSC.bcast(rank == 0 ? (x -> x + 1) : nothing, world)
    @test Base.invokelatest(closure, 1) == 2
    err = try LibDSC.bcast(NotSerializable(), world) catch error; error end
    @test err isa LibDSC.InvalidArgError && err.rank == 0 && occursin("holds a socket", err.message)
    err = try LibDSC.allgather_object(rank == n - 1 ? NotSerializable() : 1, world) catch error; error end
    @test err isa LibDSC.InvalidArgError && err.rank == n - 1
    @test LibDSC.allreduce(1, +, world) == n
end
