using LibDSC
LibDSC.init() do world
    x = fill(Float32(world.rank), 4)
    allreduce!(x, +, world)
    println("rank $(world.rank) of $(world.size): $x")
    w = iallreduce!(x, +, world); wait(w); println(w, fetch(w))
    println(LibDSC.bcast((a=1,b="x"), world), LibDSC.allgather_object(world.rank, world))
    println(LibDSC.allreduce(Int16(3), (a,b)->a+2b, world))
end
