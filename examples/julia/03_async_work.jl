# Operations that run while the program computes: names with an i return a work object to wait for later.
#
#     dscrun -n 4 -- julia 03_async_work.jl

using LibDSC

const COUNT, OPERATIONS = 1 << 18, 4

LibDSC.init() do world
    # Each call returns immediately. The array belongs to the operation until the operation has completed.
    works = [iallreduce!(fill(Float32(world.rank + i), COUNT), +, world) for i in 1:OPERATIONS]

    harmonic = sum(inv, 1.0:5_000_000) # meanwhile a thread of the library computes the sums

    completed = count(LibDSC.test, works) # tests without waiting
    foreach(wait, reverse(works)) # waiting in any order is fine; other tasks run meanwhile

    for (i, work) in enumerate(works)
        @assert all(isequal(Float32(sum(0:world.size - 1) + world.size * i)), fetch(work))
    end
    println("rank $(world.rank): $completed of $OPERATIONS all-reduces were complete after the computing ",
        "($(round(harmonic; digits = 3))), now all are")
end
