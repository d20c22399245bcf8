# The steps of training with sharded parameters.

"""
    unit(body, sharded, u)

Calls `body` with the full parameters of unit u, as a vector of arrays in the order of `sharded.units[u]`. In stage 3
they are gathered before and released afterwards: then the arrays must not be used any more. All ranks must use the
units in the same order.
"""
function unit(body, sharded::Sharded, u::Integer)
    1 <= u <= length(sharded.units) || invalid("unit: u is $u; expected a unit from 1 to $(length(sharded.units))")
    handle = sharded_handle(sharded)
    reap()
    check(outside_gc(Raw.dsc_sharded_unshard, handle, u - 1))
    result = try
        check(outside_gc(Raw.dsc_sharded_wait, handle, u - 1, C_NULL))
        body([param_view(sharded, index) for index in sharded.units[u]])
    catch
        outside_gc(Raw.dsc_sharded_reshard, handle, u - 1, C_NULL) # its error would hide the first one
        rethrow()
    end
    check(outside_gc(Raw.dsc_sharded_reshard, handle, u - 1, C_NULL))
    return result
end

"Returns a parameter as an array over the library's memory. In stage 3 it may be used only inside `unit`."
function param_view(sharded::Sharded, index::Integer)
    expect_param(sharded, index)
    found = Ref{Ptr{Cvoid}}(C_NULL)
    check(Raw.dsc_sharded_param_view(sharded_handle(sharded), index - 1, found))
    type, dimensions = sharded.sizes[index]
    return array_over(sharded, type, found[], dimensions)
end

"""
    begin!(sharded; accumulate = false)

Starts an iteration. With `accumulate` its gradients are added to those of the previous one, for micro-batches.
"""
function begin!(sharded::Sharded; accumulate::Bool = false)
    reap()
    check(outside_gc(Raw.dsc_sharded_begin, sharded_handle(sharded), Int32(accumulate), C_NULL))
    return
end

"Waits until all units are reduced. Then the shards hold the means of the gradients."
function finish!(sharded::Sharded)
    check(outside_gc(Raw.dsc_sharded_finish, sharded_handle(sharded), C_NULL))
    return
end

"Runs one iteration: `body` marks every parameter."
function reduce!(body::Function, sharded::Sharded; accumulate::Bool = false)
    begin!(sharded; accumulate = accumulate)
    result = body()
    finish!(sharded)
    return result
end

"Tells that the gradient of a parameter is computed. It is copied. The last one of a unit starts its reduction."
mark_ready!(sharded::Sharded, index::Integer, grad) = pass_grad(Raw.dsc_sharded_mark_ready, sharded, index, grad)

"Adds a gradient to this rank's sum for a parameter, without marking it ready."
accumulate!(sharded::Sharded, index::Integer, grad) = pass_grad(Raw.dsc_sharded_accumulate, sharded, index, grad)

function pass_grad(raw, sharded, index, grad)
    expect_param(sharded, index)
    type, dimensions = sharded.sizes[index]
    grad isa AbstractArray && length(grad) == prod(dimensions) && is_number(eltype(grad)) || invalid(
        "the gradient of parameter $index is $(summary(grad)); expected an array of $(prod(dimensions)) elements of type $type")
    source = input(grad)
    GC.@preserve source begin
        check(outside_gc(raw, sharded_handle(sharded), index - 1, address(source), first(carrier(eltype(grad))), C_NULL))
    end
    return
end

"Tells that this rank has no gradient for a parameter: it contributes zeros."
function mark_unused!(sharded::Sharded, index::Integer)
    expect_param(sharded, index)
    check(outside_gc(Raw.dsc_sharded_mark_unused, sharded_handle(sharded), index - 1))
    return
end

expect_param(sharded, index) = 1 <= index <= length(sharded) ||
    invalid("index is $index; expected a parameter from 1 to $(length(sharded))")

"""
    clip!(sharded; max_norm = Inf, scale = 1) -> Float64

Scales the gradients of the latest iteration and limits their norm. Returns the norm before it was limited; if it is not
finite, no gradient was changed. All ranks must call it.
"""
clip!(sharded::Sharded; options...) = clip_with(Raw.dsc_sharded_clip, sharded_handle(sharded), nothing, options, C_NULL)

"""
    step_done!(sharded; changed = true)

Ends a step, on all ranks: starts to gather the parameters that the optimizer has written to the shards. `changed =
false`: the step was skipped.
"""
function step_done!(sharded::Sharded; changed::Bool = true)
    check(outside_gc(Raw.dsc_sharded_step_done, sharded_handle(sharded), Int32(changed), C_NULL))
    return
end
