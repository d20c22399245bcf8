# Asynchronous operations: their buffers stay alive, tasks and the collector run, dropped works are released.

# A separate function, so that no variable keeps the arrays or works alive.
@noinline function start_and_drop(world, n)
    for _ in 1:n
        iallreduce!(ones(Float32, 5000), +, world)
    end
end

function test(world)
    n = world.size
    works = Work[]
    for i in 1:40
        push!(works, iallreduce!(fill(Float64(i), 3000), +, world))
        i % 10 == 0 && GC.gc()
    end
    garbage = [rand(3000) for _ in 1:200] # would overwrite buffers that were freed too early
    @test all(fetch(works[i]) == fill(Float64(n * i), 3000) for i in 1:40)
    @test all(LibDSC.test, works) && string(works[1]) == "Work(world, completed)"
    test_drop(world)
    test_tasks(world)
    # A wait with a time-out returns false while the others have not arrived.
    if n > 1
        late = world.rank == 0
        late && LibDSC.recv!([0], world; source = n - 1) # until the last rank has timed out
        work = iallreduce!([1.0], +, world)
        if world.rank == n - 1
            @test wait(work; timeout = 0.01) == false
            LibDSC.send([0], world; dest = 0)
        end
        @test wait(work) && fetch(work) == [n]
    end
    @test wait(LibDSC.ibarrier(world); timeout = 100)
    # Without a valid handle the result is not known, so it is no success.
    lost = LibDSC.ibarrier(world)
    LibDSC.barrier(world)
    LibDSC.check(LibDSC.Raw.dsc_work_destroy(LibDSC.handle_of(lost.owned)))
    @test_throws LibDSC.BadHandleError wait(lost)
end

function test_drop(world)
    kept = length(LibDSC.OWNED)
    start_and_drop(world, 30)
    for _ in 1:3
        GC.gc() # finalizers only mark the works
        LibDSC.barrier(world) # each call releases those that are complete
    end
    LibDSC.barrier(world)
    @test length(LibDSC.OWNED) < kept + 30
    @test LibDSC.allreduce(1, +, world) == world.size
end

# While a task waits for the other ranks, other tasks of this rank run, and may even be what the others wait for.
function test_tasks(world)
    group = LibDSC.split(world, 0; name = "tasks")
    gate = Channel{Int}(1)
    waiting = @async begin
        work = iallreduce!([1], +, world)
        wait(work)
        put!(gate, 1)
        fetch(work)
    end
    worker = @async LibDSC.allreduce(2, +, group)
    @test fetch(worker) == 2 * world.size
    @test fetch(waiting) == [world.size] && take!(gate) == 1
    LibDSC.free(group)
end
