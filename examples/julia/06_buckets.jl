# Gradient buckets: the plan alone, and a reducer that averages gradients while they are being computed.
#
#     dscrun -n 4 -- julia 06_buckets.jl

using LibDSC, Printf

const COUNTS = [100, 10, 50, 5]

"Prints buckets as [0, 1] [2, 3]. Parameters have numbers from 1 in Julia; here they are counted as in the other languages."
function show_plan(params, limit)
    plan = LibDSC.plan_buckets(params, [limit])
    println("limit of $limit bytes: ", join(["[" * join(bucket .- 1, ", ") * "]" for bucket in plan], " "))
end

LibDSC.init() do world
    params = [zeros(Float32, count) for count in COUNTS]
    world.rank == 0 && foreach(limit -> show_plan(params, limit), (1 << 20, 200))

    reducer = Reducer(world, params; bucket_bytes = 200, first_bucket_bytes = 200)
    grads = similar(params)
    reduce!(reducer) do
        for i in length(params):-1:1 # backward: the last parameter's gradient is computed first
            grads[i] = fill(Float32((world.rank + 1) * i), COUNTS[i])
            mark_ready!(reducer, i, grads[i]) # the reduction of a full bucket starts automatically
        end
    end # now grads hold the mean over all ranks

    @assert all(i -> all(isequal((world.size + 1) / 2 * i), grads[i]), eachindex(grads))
    println("rank $(world.rank): mean gradients ", join([@sprintf("%g", first(grad)) for grad in grads], " "))
end
