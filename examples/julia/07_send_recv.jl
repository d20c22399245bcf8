# Messages around a ring. A send completes only when its receiver has called recv!. Therefore both directions are started
# before either of them is waited for.
#
#     dscrun -n 4 -- julia 07_send_recv.jl

using LibDSC

function pass_around(world)
    following, previous = mod(world.rank + 1, world.size), mod(world.rank - 1, world.size)
    outgoing = fill(world.rank, 1000)
    incoming = similar(outgoing)
    seen = 0
    for hop in 1:world.size - 1 # the received values are sent on to the next rank
        receiving = irecv!(incoming, world; source = previous)
        sending = LibDSC.isend(outgoing, world; dest = following)
        wait(receiving)
        wait(sending)
        @assert all(isequal(mod(world.rank - hop, world.size)), incoming)
        seen += incoming[1]
        outgoing .= incoming
    end
    println("rank $(world.rank): $(world.size - 1) messages from rank $previous, values sum to $seen")
end

LibDSC.init() do world
    world.size < 2 && error("a ring needs two ranks or more: dscrun -n 4 -- julia 07_send_recv.jl")
    pass_around(world)
end
