# Groups, and their release by the collector.

@noinline make_and_drop(world) = (LibDSC.split(world, 0; name = "dropped"); nothing)
@noinline make_and_free(world) = LibDSC.free(LibDSC.split(world, 0; name = "freed"))

function test(world)
    rank, n = world.rank, world.size
    parity = LibDSC.split(world, rank % 2; name = "parity")
    members = [r for r in 0:n - 1 if r % 2 == rank % 2]
    @test parity.size == length(members) && members[parity.rank + 1] == rank && parity.name == "parity"
    @test LibDSC.allreduce(rank, +, parity) == sum(members)
    @test [LibDSC.global_rank(parity, r) for r in 0:parity.size - 1] == members
    backwards = LibDSC.split(world, 0; key = -rank)
    @test backwards.rank == n - 1 - rank
    @test LibDSC.split(world, rank == 0 ? nothing : 1) === nothing || rank > 0
    pair = LibDSC.group(world, n == 1 ? [0] : [n - 1, 0]; timeout = 100)
    @test (pair === nothing) == !(rank in (0, n - 1))
    pair === nothing || @test LibDSC.allgather(rank, pair) == (n == 1 ? [0] : [n - 1, 0])
    for i in 1:20
        make_and_drop(world)
        i % 5 == 0 && GC.gc()
    end
    make_and_free(world)
    GC.gc()
    LibDSC.barrier(world)
    @test LibDSC.DROPPED[] == 0 # all dropped groups are released, and the freed one is not counted
    LibDSC.free(parity)
    @test_throws LibDSC.BadHandleError LibDSC.barrier(parity)
    @test_throws LibDSC.InvalidArgError LibDSC.free(world)
    @test_throws LibDSC.InvalidArgError LibDSC.split(world, 0; color = 1)
    # A group that was revoked does not end the others.
    failing = LibDSC.split(world, 0; name = "failing")
    LibDSC.barrier(world)
    rank == n - 1 && LibDSC.abort(failing)
    @test_throws LibDSC.RevokedError LibDSC.barrier(failing)
    @test LibDSC.allreduce(1, +, world) == n
end
