# The gradient reducer over trees of arrays.

# A tree as Lux and Flux make it, whose values depend on `scale`. The second layer has no parameters.
tree(scale) = (
    layer_1 = (weight = fill(Float32(scale), 3, 4), bias = fill(Float32(2scale), 4), activation = tanh),
    layer_2 = NamedTuple(),
    blocks = [(scale = fill(Float32(3scale), 5),), (scale = fill(Float32(4scale), 5),)],
    last = (fill(Float32(5scale), 2, 2, 2), nothing),
)

function test(world)
    n, mean = world.size, (world.size + 1) / 2
    params = tree(world.rank + 7)
    reducer = LibDSC.Reducer(world, params; bucket_bytes = 100, first_bucket_bytes = 64)
    @test length(reducer) == 5 && params.layer_1.weight == fill(7.0f0, 3, 4) && params.last[1][1] == 35
    @test sort(vcat(LibDSC.buckets(reducer)...)) == 1:5
    for step in 1:3
        grads = tree(step * (world.rank + 1))
        GC.gc()
        @test reduce!(reducer, grads) === grads
        @test grads.layer_1.weight ≈ fill(step * mean, 3, 4) && grads.layer_1.bias ≈ fill(2step * mean, 4)
        @test grads.blocks[2].scale ≈ fill(4step * mean, 5) && grads.last[1] ≈ fill(5step * mean, 2, 2, 2)
    end
    test_single_marks(world, reducer, mean)
    test_clip(reducer)
    test_refusals(reducer)
    LibDSC.free(reducer)
    @test_throws LibDSC.StateError reduce!(reducer, tree(1))
    test_views(world, mean)
    test_options(world, mean)
    test_sparse(world)
    foreach(divide_by_initial -> test_uneven(world, divide_by_initial), (true, false))
    test_dropped(world)
    n > 1 && test_early_end(world)
    n > 1 && test_missing_gradient(world)
end

function test_single_marks(world, reducer, mean)
    grads = [fill(Float32((world.rank + 1) * i), length) for (i, length) in enumerate([12, 4, 5, 5, 8])]
    wide = zeros(Float32, 24) # every second element is the gradient
    strided = view(wide, 1:2:24)
    strided .= grads[1]
    reduce!(reducer) do
        for i in 5:-1:2
            mark_ready!(reducer, i, grads[i])
            GC.gc()
        end
        mark_ready!(reducer, 1, strided)
    end
    @test strided ≈ fill(mean, 12) && sum(wide) ≈ 12mean
    @test all(i -> grads[i] ≈ fill(i * mean, length(grads[i])), 2:5)
    read = zeros(Float32, 4)
    @test LibDSC.read_grad!(read, reducer, 2) == grads[2]
end

function test_clip(reducer)
    grads = tree(1)
    reduce!(reducer, grads)
    squares = sum(x -> sum(abs2, x), LibDSC.leaves(grads))
    @test LibDSC.clip!(reducer) ≈ sqrt(squares)
    @test LibDSC.clip!(reducer; max_norm = 1) ≈ sqrt(squares)
    @test sum(x -> sum(abs2, x), LibDSC.leaves(grads)) ≈ 1 rtol = 1e-5
    @test LibDSC.clip!(reducer; norm = :max) <= 1
    err = try LibDSC.clip!(reducer; norm = :three) catch error; error end
    @test err isa LibDSC.InvalidArgError && occursin("norm is :three; expected one of", err.message)
end

function test_refusals(reducer)
    wrong = merge(tree(1), (last = (zeros(Float32, 3), nothing),))
    err = try reduce!(reducer, wrong) catch error; error end
    @test err isa LibDSC.InvalidArgError
    @test occursin("parameter 5, last.1, is 3 elements of type Float32; expected 8 elements of type Float32", err.message)
    absent = merge(tree(1), (layer_1 = nothing,))
    err = try reduce!(reducer, absent) catch error; error end
    @test err isa LibDSC.InvalidArgError && occursin("layer_1.weight, is nothing", err.message)
    @test_throws LibDSC.InvalidArgError mark_ready!(reducer, 6, zeros(Float32, 3))
    @test_throws LibDSC.StateError mark_ready!(reducer, 2, zeros(Float32, 4))
    reduce!(reducer, tree(1)) # the refused calls had no effect
end

"Gradients that are computed in the reducer's memory. The views outlive the reducer."
function test_views(world, mean)
    params = (weight = zeros(4, 3), bias = zeros(ComplexF32, 3))
    views = LibDSC.Reducer(world, params) do reducer
        views = LibDSC.grad_views(reducer)
        views.weight .= world.rank + 1
        views.bias .= (world.rank + 1) * (1 + 2im)
        reduce!(reducer, views)
        @test LibDSC.grad_view(reducer, 2) == views.bias
        return views
    end
    GC.gc()
    @test views.weight ≈ fill(mean, 4, 3) && views.bias ≈ fill(mean * (1 + 2im), 3)
    part = vec(views.weight)
    views = nothing
    GC.gc()
    @test sum(part) ≈ 12mean
    part, owner = view_and_owner(world)
    foreach(_ -> GC.gc(), 1:3) # the first one only calls finalizers, which still need the reducer
    @test owner.value isa LibDSC.Reducer && part == zeros(12)
    LibDSC.barrier(world) # a rank that releases the reducer would end it for the others
end

"A vector over a view, and its reducer, which only the vector keeps."
@noinline function view_and_owner(world)
    reducer = LibDSC.Reducer(world, [zeros(4, 3)])
    return vec(LibDSC.grad_view(reducer, 1)), WeakRef(reducer)
end

function test_options(world, mean)
    params = [zeros(10), zeros(20)]
    reducer = LibDSC.Reducer(world, params; find_unused = 1, average = :none)
    grads = [fill(world.rank + 1.0, 10), fill(1.0, 20)]
    reduce!(reducer) do
        LibDSC.accumulate!(reducer, 1, fill(1.0, 10))
        mark_ready!(reducer, 1, grads[1])
        LibDSC.mark_unused!(reducer, 2)
    end
    @test grads[1] ≈ fill(world.size * (mean + 1), 10) && LibDSC.unused(reducer) == [2]
    @test occursin("bucket_sizes", LibDSC.stats_json(reducer)) && LibDSC.rebuilds(reducer) == 0
    running = (mean = fill(Float64(world.rank), 3), count = [world.rank])
    LibDSC.set_buffers!(reducer, running)
    GC.gc()
    LibDSC.sync_buffers!(reducer, :mean)
    @test running.mean ≈ fill(mean - 1, 3) && running.count == [0]
    err = try LibDSC.Reducer(world, params; average = :middle) catch error; error end
    @test err isa LibDSC.InvalidArgError && occursin("average is :middle; expected one of :none, :post", err.message)
    @test LibDSC.plan_buckets([zeros(Float32, 100), zeros(Float32, 10)], [200]) == [[1], [2]]
end

function test_sparse(world)
    params = (embedding = zeros(Float32, 2, 5), bias = zeros(ComplexF32, 3))
    LibDSC.Reducer(world, params; sparse = [1]) do reducer
        bias = fill(ComplexF32(world.rank, 1), 3)
        own = world.rank % 5 + 1
        reduce!(reducer) do
            for wrong in ([6], [0])
                @test_throws LibDSC.InvalidArgError LibDSC.mark_sparse!(reducer, 1, wrong, zeros(Float32, 2))
            end
            err = try LibDSC.mark_sparse!(reducer, 1, [1, 2], zeros(Float32, 3)) catch error; error end
            @test err isa LibDSC.InvalidArgError && occursin("expected 4 elements of type Float32", err.message)
            LibDSC.mark_sparse!(reducer, 1, (2, own), Float32[1 3; 2 4])
            mark_ready!(reducer, 2, bias)
        end
        expected, found = zeros(Float32, 2, 5), zeros(Float32, 2, 5)
        for rank in 0:world.size - 1, (slice, values) in ((2, [1, 2]), (rank % 5 + 1, [3, 4]))
            expected[:, slice] .+= values ./ world.size
        end
        slices, values = LibDSC.sparse_grad(reducer, 1)
        @test size(values) == (2, length(slices)) && eltype(values) === Float32
        foreach((slice, column) -> found[:, slice] .+= column, slices, eachcol(values))
        @test found ≈ expected && bias ≈ fill(ComplexF32((world.size - 1) / 2, 1), 3)
        @test_throws LibDSC.InvalidArgError LibDSC.sparse_grad(reducer, 2)
        LibDSC.barrier(world) # a rank that releases the reducer early would end it for the others
    end
    @test_throws LibDSC.InvalidArgError LibDSC.Reducer(world, params; sparse = [3])
end

"Each rank has one batch more than the one before it."
function test_uneven(world, divide_by_initial)
    n, params, means = world.size, [zeros(3), zeros(Float32, 2)], Float64[]
    reducer = LibDSC.Reducer(world, params)
    last = LibDSC.join_uneven(reducer; params = params, divide_by_initial = divide_by_initial) do
        for step in 1:world.rank + 1
            grads = [ones(3), ones(Float32, 2)]
            reduce!(reducer, grads)
            GC.gc()
            push!(means, grads[1][1])
            params[2] .+= 1
        end
    end
    @test last == n - 1 && params[2] == fill(n, 2)
    @test means ≈ [divide_by_initial ? (n - step + 1) / n : 1.0 for step in 1:world.rank + 1]
    grads = [fill(world.rank + 1.0, 3), ones(Float32, 2)]
    reduce!(reducer, grads) # the reducer has left the join
    @test grads[1] ≈ fill((n + 1) / 2, 3)
    @test_throws LibDSC.InvalidArgError LibDSC.join_uneven(() -> nothing, []; params = ())
    @test_throws ErrorException LibDSC.join_uneven(() -> error("no data"), reducer; params = params)
    @test_throws UndefKeywordError LibDSC.join_uneven(() -> nothing, reducer) # ranks would keep different parameters
    LibDSC.barrier(world)
    LibDSC.free(reducer)
end

function test_early_end(world)
    reducer = LibDSC.Reducer(world, [zeros(3)])
    @test_throws LibDSC.StateError LibDSC.join_uneven(reducer; params = (), throw_on_early_end = true) do
        foreach(step -> reduce!(reducer, [ones(3)]), 1:world.rank + 1)
    end
    LibDSC.barrier(world)
    LibDSC.free(reducer)
end

@noinline function make_and_drop(world)
    reducer = LibDSC.Reducer(world, [zeros(3)])
    reduce!(reducer, [ones(3)])
    return
end

function test_dropped(world)
    for i in 1:6
        make_and_drop(world)
        LibDSC.barrier(world) # a rank that releases a reducer early would end it for the others
        i % 3 == 0 && GC.gc()
    end
end

"One rank omits a gradient: it and the others get errors that name it."
function test_missing_gradient(world)
    reducer = LibDSC.Reducer(world, (first = zeros(3), second = zeros(3)))
    err = try
        reduce!(reducer) do
            mark_ready!(reducer, 1, ones(3))
            world.rank == world.size - 1 || mark_ready!(reducer, 2, ones(3))
        end
    catch error
        error
    end
    if world.rank == world.size - 1
        @test err isa LibDSC.StateError && occursin("second", err.message)
    else
        @test err isa LibDSC.MismatchError && err.rank == world.size - 1 && occursin("second", err.message)
    end
end
