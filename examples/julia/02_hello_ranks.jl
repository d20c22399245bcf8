# The four basic collectives. With four ranks each of them prints
#
#     rank summed to 6, reduce-scatter 6, all-gather [0, 1, 2, 3], broadcast 4
#
#     dscrun -n 4 -- julia 02_hello_ranks.jl

using LibDSC

LibDSC.init() do world
    # All-reduce: every rank contributes its number; every rank gets the sum of all numbers.
    total = LibDSC.allreduce(world.rank, +, world)

    # Reduce-scatter: every rank contributes one number for each rank; rank r gets the sum of the numbers for it.
    part = reduce_scatter!(fill(world.rank, world.size), [0], +, world)

    # All-gather: every rank contributes its number; every rank gets all numbers, in rank order.
    numbers = LibDSC.allgather(world.rank, world)

    # Broadcast: rank 0 sends the number of ranks to all others.
    told = bcast!([world.rank == 0 ? world.size : -1], world; root = 0)

    println("rank $(world.rank) of $(world.size): rank summed to $total, reduce-scatter $(part[1]), ",
        "all-gather $numbers, broadcast $(told[1])")
end
