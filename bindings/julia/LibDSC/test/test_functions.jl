# Reductions by functions of Julia.

struct Extent # as in MPI.jl's tests: an isbits type with an operation of its own
    low::Float64
    high::Int16
end

join_extents(a, b) = Extent(min(a.low, b.low), max(a.high, b.high))

function test(world)
    rank, n = world.rank, world.size
    # In rank order, so functions need not be commutative.
    @test LibDSC.allreduce(Float64(rank + 1), (a, b) -> 2a + b, world) === foldl((a, b) -> 2a + b, 1.0:n)
    @test LibDSC.allreduce(Int16(rank), +, world) === Int16(sum(0:n - 1)) # no type of the library
    @test LibDSC.allreduce(complex(0.0, 1.0), *, world) ≈ complex(0.0, 1.0)^n
    extent = allreduce!([Extent(rank, rank)], join_extents, world)
    @test extent == [Extent(0, n - 1)]
    x = reshape(collect(1.0:150_000), 3, 50_000) # several pieces
    @test allreduce!(copy(x), hypot, world) ≈ sqrt(n) .* x
    last_rank = n - 1
    reduced = reduce!([rank, 1], rank == last_rank ? zeros(Int, 2) : nothing, (a, b) -> 10a + b, world; root = last_rank)
    @test reduced == (rank == last_rank ? foldl.((a, b) -> 10a + b, [0:n - 1, fill(1, n)]) : nothing)
    y = collect(1:6)
    allreduce!(view(y, 2:2:6), (a, b) -> a - b, world)
    @test y == [1, 2 * (2 - n), 3, 4 * (2 - n), 5, 6 * (2 - n)]
    @test_throws LibDSC.UnsupportedError iallreduce!([1.0], hypot, world)
    @test_throws LibDSC.UnsupportedError reduce_scatter!(zeros(n), zeros(1), hypot, world)
    n > 1 && test_failure(world)
    @test LibDSC.allreduce(1, +, world) == n # the communicator still works
end

# A function that throws on one rank: all ranks get the same error, which names it.
function test_failure(world)
    failing = world.size - 1
    fails(a, b) = world.rank == failing && a >= 0 ? error("cannot combine $b") : a + b
    err = try
        allreduce!(Int16[1, 2], fails, world)
    catch error
        error
    end
    @test err isa LibDSC.CallbackError && err.rank == failing && err.ranks == [failing]
    @test occursin("failed on rank $failing", err.message) && occursin("cannot combine 1", err.message)
end
