# A mesh: named axes instead of colors and keys. Pairs of ranks share a layer (tp), and such pairs form a pipeline (pp).
# The last stage broadcasts a value that only it knows.
#
#     dscrun -n 4 -- julia 14_mesh.jl

using LibDSC

LibDSC.init() do world
    rank = world.rank
    # The first axis of the order varies fastest: neighbors along it have consecutive ranks. -1 stands for the rest of
    # the world.
    mesh = LibDSC.Mesh("tp" => iseven(world.size) ? 2 : 1, "pp" => -1; order = "tp-pp", world_size = world.size)
    println("rank $rank is $(LibDSC.rank_name(mesh, rank)): layer of $(LibDSC.ranks(mesh, rank, "tp")), ",
        "pipeline of $(LibDSC.ranks(mesh, rank, "pp"))")

    pipeline = LibDSC.group(mesh, world, "pp") # all ranks make the communicators of an axis together
    loss = bcast!([rank], pipeline; root = pipeline.size - 1)
    @assert loss[1] == LibDSC.peer(mesh, rank, "pp", -1)
    println("rank $rank: the loss is $(loss[1])")
end
