# A single process is a world of one rank, so a program needs no special version for it.
#
#     julia 01_one_process.jl

using LibDSC

LibDSC.init() do world # no launcher has set RANK: a world of one rank
    println("rank $(world.rank) of $(world.size)")
    x = [1.0, 2.0, 3.0]
    allreduce!(x, +, world) # the sum over one rank is that rank's own values
    @assert x == [1.0, 2.0, 3.0]
    println("all-reduce of [1, 2, 3] is ", Int.(x))
end # waits for all ranks and ends the world
