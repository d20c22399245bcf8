# Several threads of Julia: collections run while another thread is inside a blocking operation. Needs two ranks, and
# JULIA_NUM_THREADS=2.

const COLLECTED = joinpath(tempdir(), "libdsc-julia-collected-" * get(ENV, "DSC_JOB_ID", string(getpid())))

function test(world)
    Threads.nthreads() > 1 && world.size > 1 || return @test_skip "needs two threads and two ranks"
    if world.rank == 0
        # The other ranks wait in the barrier until one of them has collected there.
        @test timedwait(() -> isfile(COLLECTED), 100.0) === :ok
        LibDSC.barrier(world)
        rm(COLLECTED; force = true)
    else
        test_collections(world)
    end
    # Works that several threads start and drop, each with its own communicator.
    groups = [LibDSC.split(world, 0) for _ in 1:Threads.nthreads()]
    Threads.@threads for group in groups
        for _ in 1:20
            iallreduce!(ones(100), +, group)
        end
        wait(iallreduce!(ones(100), +, group))
    end
    GC.gc()
    @test LibDSC.allreduce(1, +, world) == world.size
end

"""
Enters the barrier while another thread collects. Without the state in which collections ignore this thread, the first
collection would wait for the barrier, and rank 0 would wait for the collection.
"""
function test_collections(world)
    inside = Threads.Atomic{Bool}(false)
    started = Threads.Atomic{Bool}(false)
    # A busy loop, so that the task stays on the thread that has started it.
    collector = Threads.@spawn begin
        started[] = true
        while !inside[]; GC.safepoint(); end
        for _ in 1:5
            GC.gc()
        end
        touch(COLLECTED)
    end
    Threads.threadid() == 1 || error("the test expects to run on the first thread")
    while !started[]; GC.safepoint(); end # does not yield, so that the other thread takes the task
    inside[] = true
    LibDSC.barrier(world)
    @test fetch(collector) !== nothing
end
