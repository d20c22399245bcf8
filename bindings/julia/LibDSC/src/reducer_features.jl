# What a reducer offers beside the iteration itself.

"""
    grad_view(reducer, index) -> Array

Returns a parameter's gradient in its bucket, as an array of the parameter's size over the library's memory. A gradient
that is computed there is never copied. Ask before the first iteration, because later the addresses may change once.
"""
function grad_view(reducer::Reducer, index::Integer)
    1 <= index <= length(reducer) || wrong_index(reducer, index)
    return view_like(reducer, leaves(reducer.params)[index], index)
end

"Returns the views of all gradients, as a tree like the parameters."
grad_views(reducer::Reducer) = map_leaves((leaf, index) -> view_like(reducer, leaf, index), reducer.params)

function view_like(reducer, leaf, index)
    found = Ref{Ptr{Cvoid}}(C_NULL)
    check(Raw.dsc_bucket_reducer_grad_view(reducer_handle(reducer), index - 1, found))
    array = unsafe_wrap(Array, Ptr{eltype(leaf)}(found[]), size(leaf))
    isempty(array) || finalizer(_ -> reducer, kept_by_views(array)) # the closure keeps the reducer, which owns the memory
    return array
end

"""
What `vec` and `reshape` of an array keep alive: before Julia 1.11 the array itself, and then the `Memory` below it,
which all these arrays share.
"""
kept_by_views(array::Array) = isdefined(Core, :GenericMemory) ? array.ref.mem : array

"Copies a parameter's gradient out of its bucket, between iterations."
function read_grad!(grad, reducer::Reducer, index::Integer)
    expect_grad(reducer, index, grad)
    target = output(grad)
    GC.@preserve target check(Raw.dsc_bucket_reducer_read_grad(reducer_handle(reducer), index - 1, address(target)))
    unpack(target)
    return grad
end

"""
    clip!(reducer; max_norm = Inf, scale = 1, norm = :two, shards = nothing) -> Float64

Scales the gradients of the latest iteration and limits their norm. Returns the norm before it was limited; if it is not
finite, no gradient was changed. All ranks must call it. `shards` is the communicator of the ranks that have the other
parts of the model.
"""
function clip!(reducer::Reducer; shards::Union{Comm, Nothing} = nothing, options...)
    given, _ = options_of(Raw.dsc_clip_options_t, Raw.dsc_clip_options_init, "clip!", options)
    shards === nothing || (given[] = changed(given[]; shards = shards.handle))
    found = Ref(0.0)
    GC.@preserve given found shards check(outside_gc(Raw.dsc_bucket_reducer_clip, reducer_handle(reducer),
        pointer_to(given), pointer_to(found)))
    return found[]
end

"Sets whether the following iterations are reduced, or only added up on this rank."
set_sync!(reducer::Reducer, sync::Bool) = (check(Raw.dsc_bucket_reducer_set_sync(reducer_handle(reducer), sync)); nothing)

"Sets how buckets are reduced, such as \"bf16\"; see docs/hooks.md."
use_hook!(reducer::Reducer, hook::AbstractString) =
    (check(Raw.dsc_bucket_reducer_use_hook(reducer_handle(reducer), String(hook))); nothing)

"Returns how often the buckets were rebuilt in the order in which gradients become ready."
rebuilds(reducer::Reducer) = number_of(out -> Raw.dsc_bucket_reducer_rebuilds(reducer_handle(reducer), out), UInt64)

"Returns the parameters for which no rank had a gradient, in ascending order."
unused(reducer::Reducer) =
    Int.(list_of((room...) -> Raw.dsc_bucket_reducer_unused(reducer_handle(reducer), room...), Csize_t)) .+ 1

"Returns the buckets in the order of their start, as vectors of parameters."
function buckets(reducer::Reducer)
    indices, starts, n = zeros(Csize_t, length(reducer)), zeros(Csize_t, length(reducer) + 1), Ref{Csize_t}(0)
    check(Raw.dsc_bucket_reducer_buckets(reducer_handle(reducer), indices, starts, n))
    return listed_buckets(indices, starts, n[])
end

listed_buckets(indices, starts, n) = [Int.(indices[starts[i] + 1:starts[i + 1]]) .+ 1 for i in 1:n]

"Returns measurements of the latest iterations, as a JSON text."
stats_json(reducer::Reducer) = text_of((room...) -> Raw.dsc_bucket_reducer_stats_json(reducer_handle(reducer), room...))

"""
    plan_buckets(arrays, limits) -> Vector{Vector{Int}}

Divides arrays into buckets of at most `limits` bytes, one limit per bucket and the last one for the rest. Needs no
ranks.
"""
function plan_buckets(arrays, limits)
    counts, bytes = Csize_t[length(array) for array in arrays], Csize_t[limits...]
    types = Raw.dsc_dtype_t[first(carrier(eltype(array))) for array in arrays]
    indices, starts, n = similar(counts), zeros(Csize_t, length(counts) + 1), Ref{Csize_t}(0)
    options = changed(defaults(Raw.dsc_bucket_plan_options_t, Raw.dsc_bucket_plan_options_init);
        limits = pointer(bytes), n_limits = length(bytes))
    GC.@preserve bytes check(Raw.dsc_bucket_plan(counts, types, length(counts), Ref(options), indices, starts, C_NULL, n))
    return listed_buckets(indices, starts, n[])
end

"""
    set_buffers!(reducer, buffers)

Registers a tree of arrays that are not parameters, such as running means. `sync_buffers!` makes them equal. They must
be contiguous and stay alive; the reducer keeps them.
"""
function set_buffers!(reducer::Reducer, buffers)
    arrays = leaves(buffers)
    all(is_contiguous, arrays) || invalid("set_buffers!: a buffer is not contiguous; expected arrays whose elements are")
    tensors = describe([(eltype(array), size(array)) for array in arrays], address.(Dense.(arrays)), leaf_names(buffers))
    GC.@preserve tensors begin
        list = pointer(tensors.list)
        check(outside_gc(Raw.dsc_bucket_reducer_set_buffers, reducer_handle(reducer), list, length(arrays)))
    end
    reducer.owned.roots = (reducer.comm, arrays)
    return
end

"Makes the buffers equal on all ranks: `:broadcast` copies those of rank 0, `:mean` averages them."
function sync_buffers!(reducer::Reducer, how::Symbol = :broadcast)
    number = enumerator("DSC_BUFFER_SYNC_", "how", how)
    check(outside_gc(Raw.dsc_bucket_reducer_sync_buffers, reducer_handle(reducer), number))
    return
end
