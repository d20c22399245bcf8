# Messages between ranks.

function test(world)
    rank, n = world.rank, world.size
    right, left = mod(rank + 1, n), mod(rank - 1, n)
    @test LibDSC.sendrecv!([rank, 1], zeros(Int, 2), world; dest = right, source = left) == [left, 1]
    n == 1 && return
    if rank == 0
        LibDSC.send(view(collect(1:6), 1:2:6), world; dest = 1) # only every second element
        @test LibDSC.recv_object(world; source = 1) == Dict("a" => [1, 2])
    elseif rank == 1
        into = zeros(Int, 6)
        recv!(view(into, 6:-2:2), world; source = 0)
        @test into == [0, 5, 0, 3, 0, 1]
        LibDSC.send_object(Dict("a" => [1, 2]), world; dest = 0)
    end
    # Many messages in flight, with the collector in between.
    received = [irecv!(zeros(Float32, 1000), world; source = left) for _ in 1:20]
    sent = [LibDSC.isend(fill(Float32(i), 1000), world; dest = right) for i in 1:20]
    GC.gc()
    @test all(wait, sent)
    @test [fetch(work)[1000] for work in received] == 1:20
    @test_throws LibDSC.InvalidArgError LibDSC.send([1], world; dest = n)
end
