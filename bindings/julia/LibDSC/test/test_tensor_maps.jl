# Tensor-parallel mappings of column-major arrays, along every dimension.

whole_array(world) = reshape(collect(1.0:24.0 * world.size^2), 2world.size, 3, 4world.size)

function part_along(x, dim, world)
    n = size(x, dim) ÷ world.size
    return selectdim(x, dim, world.rank * n + 1:(world.rank + 1) * n)
end

function test(world)
    whole = whole_array(world)
    for dim in (1, 3), (type, scale) in ((Float64, 1), (ComplexF32, 1 + 1im))
        test_mappings(type.(whole) .* type(scale), dim, world)
    end
    test_uneven_parts(world)
    test_started(world, whole)
    test_wrong_arguments(world, whole)
    test_unknown_numbers(world)
end

function test_mappings(x, dim, world)
    n = world.size
    part = Array(part_along(x, dim, world))
    map(mapping, array; options...) = LibDSC.tensor_map(mapping, array, dim, world; options...)
    GC.gc()
    @test map(:copy, x) == x && map(:copy, x; backward = true) ≈ n * x
    @test map(:reduce, x) ≈ n * x && map(:reduce, x; backward = true) == x
    @test map(:scatter, x) == part && map(:scatter, part; backward = true) == x
    @test map(:gather, part) == x && map(:gather, x; backward = true) == part
    @test map(:gather_reduce, part) == x && map(:gather_reduce, x; backward = true) ≈ n * part
    @test map(:reduce_scatter, x) ≈ n * part && map(:reduce_scatter, part; backward = true) == x
    @test map(:gather, part_along(x, dim, world)) == x # a view that is not contiguous
end

"Rank r has a part of r columns, and the last rank one more."
function test_uneven_parts(world)
    n = world.size
    parts = [r + (r == n - 1) for r in 0:n - 1]
    x = reshape(collect(1.0:3 * sum(parts)), 3, sum(parts))
    part = x[:, sum(parts[1:world.rank]) + 1:sum(parts[1:world.rank + 1])]
    map(mapping, array; options...) = LibDSC.tensor_map(mapping, array, 2, world; parts = parts, options...)
    @test map(:scatter, x) == part && map(:scatter, part; backward = true) == x
    @test map(:gather, part) == x && map(:gather, x; backward = true) == part
    @test map(:gather_reduce, part) == x && map(:gather_reduce, x; backward = true) ≈ n * part
    @test map(:reduce_scatter, x) ≈ n * part && map(:reduce_scatter, part; backward = true) == x
    @test fetch(LibDSC.itensor_map!(similar(x), :gather, part, 2, world; parts = parts)) == x
    for wrong in (parts[2:end], fill(-1, n), parts .+ 1)
        @test_throws LibDSC.InvalidArgError LibDSC.tensor_map(:scatter, x, 2, world; parts = wrong)
        @test_throws LibDSC.InvalidArgError LibDSC.tensor_map(:reduce, x, 2, world; parts = wrong)
    end
end

function test_started(world, whole)
    sums = similar(whole)
    work = LibDSC.itensor_map!(sums, :reduce, whole, 1, world)
    GC.gc()
    @test fetch(work) === sums && sums ≈ world.size * whole
    LibDSC.tensor_map!(sums, :copy, sums, 2, world; backward = true)
    @test sums ≈ world.size^2 * whole
end

function test_wrong_arguments(world, whole)
    @test_throws LibDSC.InvalidArgError LibDSC.tensor_map(:gathers, whole, 1, world)
    @test_throws LibDSC.InvalidArgError LibDSC.tensor_map(:gather, whole, 4, world)
    @test_throws LibDSC.InvalidArgError LibDSC.tensor_map!(zeros(3), :copy, whole, 1, world)
    world.size == 1 || @test_throws LibDSC.InvalidArgError LibDSC.tensor_map(:scatter, zeros(world.size + 1), 1, world)
end

# The library does not know Int16, so it moves such elements as bytes, and cannot add them up.
function test_unknown_numbers(world)
    n = world.size
    whole = fill(Int16(200), 2n)
    part = whole[1:2]
    @test LibDSC.tensor_map(:scatter, whole, 1, world) == part && LibDSC.tensor_map(:gather, part, 1, world) == whole
    @test LibDSC.tensor_map(:gather_reduce, part, 1, world) == whole
    for (mapping, x, backward) in ((:reduce, whole, false), (:copy, whole, true), (:reduce_scatter, whole, false),
            (:gather_reduce, whole, true))
        @test_throws LibDSC.UnsupportedError LibDSC.tensor_map(mapping, x, 1, world; backward = backward)
    end
end
