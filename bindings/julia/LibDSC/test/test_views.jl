# Views with strides, and other arrays that are not contiguous.

function test(world)
    n = world.size
    # Every second element: the others keep their values.
    x = collect(1.0:10.0)
    allreduce!(view(x, 1:2:10), +, world)
    @test x == [isodd(i) ? n * i : i for i in 1:10]
    # A row of a matrix has a stride; a column and a block of columns have none, and are used without a copy.
    m = reshape(collect(Float32, 1:12), 3, 4)
    allreduce!(view(m, 2, :), +, world)
    @test m[2, :] == n * Float32[2, 5, 8, 11] && m[1, :] == Float32[1, 4, 7, 10]
    columns = view(m, :, 2:3)
    @test LibDSC.is_contiguous(columns) && !LibDSC.is_contiguous(view(m, 2, :))
    @test !LibDSC.is_contiguous(view(m, 1:2, :)) && LibDSC.is_contiguous(view(m, 1:2, 3))
    before = copy(m)
    allreduce!(columns, +, world)
    @test m[:, 2:3] == n * before[:, 2:3] && m[:, [1, 4]] == before[:, [1, 4]]
    # Transposed and permuted arrays, ranges, and a view as the receive buffer.
    square = [1.0 2; 3 4]
    @test allreduce!(transpose(square), +, world) == n * [1.0 3; 2 4] && square == n * [1.0 2; 3 4]
    permuted = PermutedDimsArray(zeros(2, 3), (2, 1))
    @test allreduce!(fill(1.0, 3, 2), permuted, +, world) == fill(n, 3, 2)
    into = zeros(Int, 9)
    allreduce!(1:3, view(into, 9:-3:1), +, world)
    @test into == [0, 0, 3n, 0, 0, 2n, 0, 0, n]
    # Asynchronous, with the collector in between; the view gets the result when the wait has ended.
    y = zeros(Float16, 4, 4)
    y[2, :] .= 1:4
    work = iallreduce!(view(y, 2, :), +, world)
    GC.gc()
    @test fetch(work) == y[2, :] == n * Float16[1, 2, 3, 4]
    # The other operations on views.
    z = fill(-1, 2n)
    allgather!([world.rank], view(z, 1:2:2n), world)
    @test z[1:2:end] == 0:n - 1 && all(isequal(-1), z[2:2:end])
    b = zeros(6)
    bcast!(world.rank == n - 1 ? (1.0:3.0) : view(b, 2:2:6), world; root = n - 1)
    @test b == (world.rank == n - 1 ? zeros(6) : [0, 1.0, 0, 2, 0, 3])
    registered_arrays(world)
end

# Arrays that operations move without copying: their addresses and elements stay, also after the collector ran.
function registered_arrays(world)
    n = world.size
    w = reshape(collect(Float32, 1:60_000), 200, 300)
    place, before = pointer(w), copy(w)
    LibDSC.register(w, world) do
        GC.gc()
        allreduce!(w, +, world)
        allreduce!(view(w, :, 2:299), max, world)
    end
    @test w == n * before && pointer(w) == place
    registration = LibDSC.register(w, world)
    @test_throws LibDSC.InvalidArgError LibDSC.register(w, world)
    LibDSC.free(registration)
    dropped = LibDSC.register(zeros(20_000), world) # no other reference to the array
    dropped = nothing
    GC.gc()
    allreduce!(w, +, world)
    @test w == n^2 * before
    @test_throws LibDSC.InvalidArgError LibDSC.register(view(w, 1, :), world)
    @test_throws LibDSC.InvalidArgError LibDSC.register(Any[1, 2], world)
end
