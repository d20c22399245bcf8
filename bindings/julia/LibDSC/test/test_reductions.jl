# allreduce! and its relatives, for all element types and operations.

repeat_sum!(x, world, times) = (for _ in 1:times; allreduce!(x, +, world); end)

function test(world)
    ranks, n = 0:world.size - 1, world.size
    for type in (Int8, UInt8, Int32, UInt32, Int64, UInt64, Float16, Float32, Float64)
        x = type[world.rank + 1, 2, 3 * (world.rank == 0)]
        @test allreduce!(x, +, world) === x
        @test x == type[sum(ranks .+ 1), 2n, 3]
    end
    for type in (Int8, Float16, Float64)
        @test LibDSC.allreduce(type(world.rank + 1), *, world) === type(factorial(n))
        @test LibDSC.allreduce(type(world.rank), max, world) === type(n - 1)
        @test LibDSC.allreduce(type(world.rank + 1), min, world) === type(1)
    end
    for type in (Int32, UInt64)
        @test LibDSC.allreduce(type(1) << world.rank, |, world) === type(2)^n - type(1)
        @test LibDSC.allreduce(type(7), &, world) === type(7)
        @test LibDSC.allreduce(type(1), xor, world) === type(n % 2)
    end
    @test LibDSC.allreduce(world.rank == 0, |, world) === true
    @test LibDSC.allreduce(world.rank == 0, &, world) === (n == 1)
    @test LibDSC.allreduce(complex(1.0, world.rank), +, world) == complex(n, sum(ranks))
    @test LibDSC.allreduce([1.5, world.rank], LibDSC.AVG, world) == [1.5, sum(ranks) / n]
    @test LibDSC.premul(op -> LibDSC.allreduce(2.0, op, world), 0.25) === n / 2
    @test isnan(LibDSC.allreduce(world.rank == 0 ? NaN : 1.0, max, world))
    large = fill(Float16(0.1), 100_003) # sums of 16-bit floats are rounded once
    @test all(isequal(Float16(n * Float32(Float16(0.1)))), allreduce!(large, +, world))
    @test allreduce!(Float32[], +, world) == Float32[]
    small = zeros(Float32, 1)
    repeat_sum!(small, world, 1) # compiles it
    @test @allocated(repeat_sum!(small, world, 1000)) < 1000 # calls do not allocate
    separate = zeros(3)
    @test allreduce!([1.0, 2, 3], separate, +, world) === separate == n * [1.0, 2, 3]
    cell = Ref(1.0f0)
    @test allreduce!(cell, +, world) === cell && cell[] == n
end
