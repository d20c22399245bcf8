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
    n > 1 && test_no_descriptors(world)
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

# A wait for which the process has no free descriptor fails at once, and the operation continues.
function test_no_descriptors(world)
    if world.rank > 0
        LibDSC.recv!([0], world; source = 0) # until rank 0 has tried to wait
        @test fetch(iallreduce!([1], +, world)) == [world.size]
        return
    end
    work = iallreduce!([1], +, world)
    LibDSC.check(LibDSC.Raw.dsc_work_eventfd(LibDSC.handle_of(work.owned), Ref{Int32}(-1))) # opens it
    err = without_descriptors(() -> try wait(work; timeout = 20) catch error; error end)
    @test err isa LibDSC.SystemError && occursin("cannot be duplicated: Too many open files", err.message)
    foreach(rank -> LibDSC.send([0], world; dest = rank), 1:world.size - 1)
    @test fetch(work) == [world.size]
end

"Calls a function while this process cannot open a descriptor."
function without_descriptors(body)
    open_files = Int32(7) # RLIMIT_NOFILE of Linux
    limit = Ref((UInt64(0), UInt64(0)))
    set(value) = @test ccall(:setrlimit, Int32, (Int32, Ref{Tuple{UInt64, UInt64}}), open_files, Ref(value)) == 0
    @test ccall(:getrlimit, Int32, (Int32, Ref{Tuple{UInt64, UInt64}}), open_files, limit) == 0
    lowest = ccall(:dup, Int32, (Int32,), 0)
    ccall(:close, Int32, (Int32,), lowest)
    set((UInt64(lowest), limit[][2]))
    try
        return body()
    finally
        set(limit[])
    end
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
