# Sharded parameters, in all stages: the same values as without sharding.

function test(world)
    for stage in 1:3
        test_training(world, stage)
        GC.gc(true)
    end
    test_micro_batches(world)
    test_types(world)
    test_copies(world)
    test_arguments(world)
end

# Small whole numbers, so that sums are exact in any order.
make_params() = (dense = (weight = reshape(collect(Float32, 1:12), 3, 4), bias = fill(2f0, 3)), act = tanh, last = [7f0, 8f0])

"The gradient of parameter i on a rank; the mean over the ranks is that of the rank in the middle."
grad_of(param, i, rank, n) = fill(Float32(i * (2rank + 3 - n)), size(param))

function test_training(world, stage)
    params = LibDSC.leaves(make_params())
    sharded = Sharded(world, make_params(); stage = stage, units = [1, 3])
    @test length(sharded) == 3 && sharded.units == [[1, 2], [3]]
    for step in 1:3
        backward(sharded, world, params)
        @test LibDSC.clip!(sharded) ≈ sqrt(sum(length(params[i]) * (2i)^2 for i in 1:3))
        GC.gc()
        for shard in sharded.shards
            shard.params .-= shard.grads
        end
        LibDSC.step_done!(sharded)
        foreach(i -> params[i] .-= 2i, 1:3) # the same step without sharding
    end
    for u in 1:2
        LibDSC.unit(arrays -> (GC.gc(); @test arrays == params[sharded.units[u]]), sharded, u)
    end
    test_ranges(sharded, params)
    @test LibDSC.memory_info(sharded).grad_shard_bytes > 0
    LibDSC.barrier(world)
    LibDSC.free(sharded)
    @test_throws LibDSC.StateError LibDSC.begin!(sharded)
end

function backward(sharded, world, params)
    reduce!(sharded) do
        for u in reverse(eachindex(sharded.units))
            LibDSC.unit(sharded, u) do arrays
                @test arrays == params[sharded.units[u]]
                for (array, i) in reverse(collect(zip(arrays, sharded.units[u])))
                    mark_ready!(sharded, i, grad_of(array, i, world.rank, world.size))
                end
            end
        end
    end
end

function test_ranges(sharded, params)
    for range in LibDSC.ranges(sharded)
        shard = sharded.shards[findfirst(shard -> shard.bucket == range.bucket, sharded.shards)]
        @test shard.params[range.shard_range] == params[range.param][range.param_range]
    end
end

"One shard of another layout, made from the shards of all ranks."
function test_copies(world)
    params = make_params()
    sharded = Sharded(world, params)
    shard = only(sharded.shards)
    of_all, whole = zeros(Float32, shard.count * world.size), zeros(Float32, 17)
    allgather!(shard.params, of_all, world)
    for copy in LibDSC.shard_copies(params, (shards = world.size,), (shards = 1, layout = :deepspeed), 0)
        @test copy.from_bucket == copy.to_bucket == 1
        whole[copy.to_range] = of_all[copy.from_shard * shard.count .+ copy.from_range]
    end
    @test whole == reduce(vcat, vec.(LibDSC.leaves(params)))
    err = try LibDSC.shard_copies(params, (shards = 1,), (layout = :unit,), 0) catch error; error end
    @test err isa LibDSC.InvalidArgError && occursin("has no `shards`", err.message)
    @test_throws LibDSC.InvalidArgError LibDSC.shard_copies(params, (shards = 1,), (shards = 1,), 1)
    LibDSC.free(sharded)
end

function test_micro_batches(world)
    sharded = Sharded(world, ([0.0, 0.0], [0.0]))
    for accumulate in (false, true)
        reduce!(sharded; accumulate = accumulate) do
            LibDSC.mark_unused!(sharded, 2)
            LibDSC.accumulate!(sharded, 1, [1.0, 2.0])
            mark_ready!(sharded, 1, view([1.0, 0.0, 2.0], 1:2:3))
        end
    end
    LibDSC.step_done!(sharded; changed = false)
    found = LibDSC.allreduce(sum(sum(shard.grads) for shard in sharded.shards), +, world)
    @test found == 12.0
    LibDSC.barrier(world)
    LibDSC.free(sharded)
end

"Gradients of another type than the parameters, and shards that outlive the object."
function test_types(world)
    shard = only(Sharded(world, ones(Float16, 16world.size); grad_dtype = Float32, average = :none).shards)
    GC.gc(true)
    @test shard.params == ones(Float16, 16) && eltype(shard.grads) == Float32
    LibDSC.barrier(world)
end

function test_arguments(world)
    @test_throws LibDSC.InvalidArgError Sharded(world, ([1.0],); stages = 2)
    @test_throws LibDSC.InvalidArgError Sharded(world, ([1.0],); stage = 4)
    for units in ([2], [1, 1], [1, 3])
        @test_throws LibDSC.InvalidArgError Sharded(world, ([1.0], [2.0]); units = units)
    end
    Sharded(world, ([1.0, 2.0],)) do sharded
        @test_throws LibDSC.InvalidArgError LibDSC.unit(identity, sharded, 2)
        LibDSC.begin!(sharded)
        @test_throws LibDSC.InvalidArgError mark_ready!(sharded, 2, [1.0, 2.0])
        @test_throws LibDSC.InvalidArgError mark_ready!(sharded, 1, [1.0])
        @test_throws LibDSC.InvalidArgError mark_ready!(sharded, 1, nothing)
        err = try LibDSC.begin!(sharded) catch error; error end
        @test err isa LibDSC.StateError && !occursin("dsc_", err.message)
        LibDSC.barrier(world)
    end
end
