# The collectives that move data. Parts of a matrix are blocks of columns, because Julia's arrays are column-major.

function test(world)
    rank, n = world.rank, world.size
    part = [10.0 * rank + row + column for row in 1:2, column in 1:3]
    whole = hcat([[10.0 * r + row + column for row in 1:2, column in 1:3] for r in 0:n - 1]...)
    @test LibDSC.allgather(part, world) == whole
    @test allgather!(part, zeros(2, 3, n), world) == reshape(whole, 2, 3, n)
    inplace = zeros(2, 3n)
    inplace[:, 3rank + 1:3rank + 3] = part
    @test allgather!(inplace, world) == whole
    @test LibDSC.allgather(rank, world) == 0:n - 1
    @test reduce_scatter!(whole, zeros(2, 3), +, world) == n * part
    sent = [100rank + r for r in 0:n - 1]
    @test alltoall!(sent, zeros(Int, n), world) == [100r + rank for r in 0:n - 1]
    @test alltoall!(sent, world) === sent == [100r + rank for r in 0:n - 1]
    for root in 0:n - 1
        test_root(world, part, whole, root)
    end
    test_counts(world)
    # Elements that the library does not know travel as bytes.
    points = LibDSC.allgather([(id = Int16(rank), at = 1.5 * rank)], world)
    @test points == [(id = Int16(r), at = 1.5 * r) for r in 0:n - 1]
    @test LibDSC.barrier(world) === nothing
    @test LibDSC.monitored_barrier(world; timeout = 100) === nothing
    @test wait(LibDSC.ibarrier(world))
end

function test_root(world, part, whole, root)
    rank, n = world.rank, world.size
    is_root = rank == root
    @test bcast!(is_root ? copy(part) : zeros(2, 3), world; root = root) == 10.0 * (root - rank) .+ part
    @test gather!(part, is_root ? zeros(2, 3n) : nothing, world; root = root) == (is_root ? whole : nothing)
    @test scatter!(is_root ? whole : nothing, zeros(2, 3), world; root = root) == part
    sums = reduce!([1, rank], is_root ? zeros(Int, 2) : nothing, +, world; root = root)
    @test sums == (is_root ? [n, sum(0:n - 1)] : nothing)
    x = [1.0f0]
    reduce!(x, +, world; root = root)
    @test x == [is_root ? n : 1]
    @test fetch(ibcast!(is_root ? [7] : [0], world; root = root)) == [7]
    @test fetch(igather!([rank], is_root ? zeros(Int, n) : nothing, world; root = root)) == (is_root ? (0:n - 1) : nothing)
end

function test_counts(world)
    rank, n = world.rank, world.size
    counts = [r + 1 for r in 0:n - 1] # rank r has r + 1 elements
    all_ranks = vcat([fill(r, r + 1) for r in 0:n - 1]...)
    @test allgatherv!(fill(rank, rank + 1), similar(all_ranks), counts, world) == all_ranks
    inplace = [r == rank ? r : -1 for r in all_ranks]
    @test allgatherv!(inplace, counts, world) == all_ranks
    @test reduce_scatterv!(all_ranks, zeros(Int, rank + 1), counts, +, world) == fill(n * rank, rank + 1)
    received = alltoallv!(fill(rank, sum(counts)), counts, zeros(Int, n * (rank + 1)), fill(rank + 1, n), world)
    @test received == repeat(0:n - 1, inner = rank + 1)
    complexes = allgatherv!(fill(complex(1.0, rank), rank + 1), zeros(ComplexF64, length(all_ranks)), counts, world)
    @test complexes == complex.(1.0, all_ranks)
    @test_throws LibDSC.InvalidArgError allgatherv!([1], [1], [1, 2, 3, 4, 5, 6], world)
end
