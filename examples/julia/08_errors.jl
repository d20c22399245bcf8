# Errors: each kind of error is an exception, whose text says what was expected and what was found.
#
#     dscrun -n 4 -- julia 08_errors.jl

using LibDSC

"Calls a function that must fail, and prints the error."
function show_error(call, world, what)
    try
        call()
    catch error
        error isa DscError || rethrow()
        println("rank $(world.rank): $what: $(nameof(typeof(error)))\n  $(error.message)")
        return error
    end
    error("rank $(world.rank): $what: nothing was thrown")
end

LibDSC.init() do world
    # A wrong argument is refused immediately. Nothing has happened, and the communicator remains usable.
    show_error(() -> allreduce!(zeros(4), zeros(3), +, world), world, "wrong argument")

    # The ranks disagree: rank 0 sums three numbers, the others four. All ranks report this, and no array is written. The
    # group has failed and cannot be used any more; the world can.
    if world.size > 1
        group = LibDSC.split(world, 0)
        x = ones(world.rank == 0 ? 3 : 4)
        error = show_error(() -> allreduce!(x, +, group), world, "ranks disagree")
        @assert error isa LibDSC.MismatchError && all(isone, x)
        # Later calls report the first cause again.
        @assert show_error(() -> LibDSC.barrier(group), world, "afterwards") isa LibDSC.RevokedError
    end

    @assert allreduce!(ones(4), +, world) == fill(world.size, 4)
    println("rank $(world.rank): the world still works")
end
