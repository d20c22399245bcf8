# Groups: split() divides the world by color, group() takes a list of ranks.
#
#     dscrun -n 4 -- julia 04_groups.jl

using LibDSC

LibDSC.init() do world
    # Ranks of one color form a group: here the even ranks and the odd ranks.
    half = LibDSC.split(world, world.rank % 2)
    kind = isodd(world.rank) ? "odd" : "even"
    println("rank $(world.rank): number $(half.rank) of $(half.size) $kind ranks, ",
        "which sum to $(LibDSC.allreduce(world.rank, +, half))")

    # All ranks of the parent make this call with the same list. The order of the list is the order in the group.
    ends = LibDSC.group(world, world.size > 1 ? [world.size - 1, 0] : [0])
    if ends !== nothing # ranks that are not listed get nothing
        first_rank = LibDSC.global_rank(ends, 0)
        @assert first_rank == world.size - 1
        println("rank $(world.rank): in the group of both ends, whose first is rank $first_rank; ",
            "sum $(LibDSC.allreduce(world.rank, +, ends))")
    end
end
