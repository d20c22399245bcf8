"""
    Reducer(comm, params; options...)

Averages gradients over the ranks in buckets, while the backward pass computes the others. `params` is a tree of arrays:
named tuples, tuples and vectors of them, as in Lux and Flux. All ranks must have the same tree; at creation the
parameters of rank 0 are copied to all ranks (`sync = 0`: not).

One step is `reduce!(reducer, grads)` with a tree like `params`; afterwards `grads` holds the means. To overlap with the
backward pass, mark gradients one by one, in any order:

    reduce!(reducer) do
        mark_ready!(reducer, 2, grad_of_bias)
        mark_ready!(reducer, 1, grad_of_weight)
    end

Parameters have numbers from 1, in the order of the fields. Gradients are copied to the buckets and back; those in
`LibDSC.grad_views(reducer)` are never copied. Parameters whose numbers are in `sparse` are marked with `mark_sparse!`.

Options are those of docs/buckets.md: `bucket_bytes`, `first_bucket_bytes`, `average` (such as `:pre` or `:none`), `sync`,
`find_unused`, `static_graph`, `rebuild`, `single_first_bucket`, `small_bucket_first`, `grad_dtype`.
"""
mutable struct Reducer{P}
    owned::Owned
    comm::Comm
    params::P
    lengths::Vector{Int}
    types::Vector{DataType}
    marked::Vector{Any} # what finish! still writes to: an array, or a Packed; nothing: not marked

    function Reducer(comm::Comm, params::P; sparse = (), options...) where {P}
        given, texts = options_of(Raw.dsc_bucket_reducer_options_t, Raw.dsc_bucket_reducer_options_init, "Reducer", options)
        arrays = leaves(params)
        all(is_on_host, arrays) || invalid("Reducer: a parameter is on a device; expected arrays in host memory")
        buffers = Any[inout(array) for array in arrays]
        tensors = describe([(eltype(array), size(array)) for array in arrays], address.(buffers), leaf_names(params))
        expect_sparse!(tensors, sparse)
        owned = create_reducer(comm, tensors, given, (texts, buffers))
        foreach(unpack, buffers)
        reducer = new{P}(owned, comm, params, length.(arrays), DataType[eltype(array) for array in arrays],
            fill!(Vector{Any}(undef, length(arrays)), nothing))
        return finalizer(reducer -> drop(reducer.owned), reducer)
    end
end

function expect_sparse!(tensors, sparse)
    for index in sparse
        index in eachindex(tensors.list) ||
            invalid("Reducer: sparse has $index; expected parameters from 1 to $(length(tensors.list))")
        tensors.list[index].ndim > 0 || invalid("Reducer: sparse has $index, a number; expected an array with slices")
        tensors.list[index] = changed(tensors.list[index]; expect_sparse = 1)
    end
    return
end

function leaves(params)
    arrays = AbstractArray[]
    each_leaf((leaf, index) -> push!(arrays, leaf), 1, params)
    return arrays
end

function create_reducer(comm, tensors, given, roots)
    GC.@preserve tensors given roots begin
        list, n, settings = pointer(tensors.list), length(tensors.list), pointer_to(given)
        return owned_handle(Raw.dsc_bucket_reducer_t, Raw.dsc_bucket_reducer_destroy; roots = comm) do out
            return outside_gc(Raw.dsc_bucket_reducer_create, comm.handle, list, n, settings, out)
        end
    end
end

@inline reducer_handle(reducer::Reducer) = Ptr{Raw.dsc_bucket_reducer_t}(reducer.owned.handle)

Base.length(reducer::Reducer) = length(reducer.lengths)
Base.show(io::IO, reducer::Reducer) =
    print(io, "LibDSC.Reducer(", length(reducer), " parameters, ", sum(reducer.lengths), " elements)")

"""
Ends this rank's part in a reducer. Views stay valid until the collector finds them and the reducer unreachable.
"""
function free(reducer::Reducer)
    check(Raw.dsc_bucket_reducer_close(reducer_handle(reducer)))
    return
end

Reducer(body::Function, comm::Comm, params; options...) = freeing(body, Reducer(comm, params; options...))

"""
    reduce!(reducer, grads)

Averages a tree of gradients over the ranks, in place, and returns it. It has the form of the parameters. All gradients
are checked before the first one is marked.
"""
function reduce!(reducer::Reducer, grads)
    each_leaf(1, reducer.params, grads) do param, index, grad
        expect_grad(reducer, index, grad)
    end
    begin!(reducer)
    each_leaf(1, reducer.params, grads) do param, index, grad
        mark_checked!(reducer, index, grad)
    end
    finish!(reducer)
    return grads
end

"Runs one iteration: `body` marks every parameter."
function reduce!(body::Function, reducer::Reducer)
    begin!(reducer)
    result = body()
    finish!(reducer)
    return result
end

"Starts an iteration."
function begin!(reducer::Reducer)
    reap()
    check(outside_gc(Raw.dsc_bucket_reducer_begin, reducer_handle(reducer), C_NULL))
    return
end

"Waits until all gradients are reduced, and writes the means to the arrays that were marked."
function finish!(reducer::Reducer)
    code = outside_gc(Raw.dsc_bucket_reducer_finish, reducer_handle(reducer), C_NULL)
    code < 0 && (fill!(reducer.marked, nothing); throw_last(code))
    for entry in reducer.marked
        entry isa Packed && unpack(entry)
    end
    fill!(reducer.marked, nothing)
    return
end

"""
    mark_ready!(reducer, index, grad)

Tells that the gradient of a parameter is computed. The last one of a bucket starts its reduction. `finish!` writes the
mean to `grad`, which is kept alive until then and must not change. Any thread may call it.
"""
@inline function mark_ready!(reducer::Reducer, index::Integer, grad)
    expect_grad(reducer, index, grad)
    return mark_checked!(reducer, index, grad)
end

@inline function mark_checked!(reducer, index, grad)
    is_contiguous(grad) || return mark_packed!(reducer, index, grad)
    mark!(Raw.dsc_bucket_reducer_mark_ready, reducer, index, grad, grad)
end

@noinline function mark_packed!(reducer, index, grad)
    packed = inout(grad)
    mark!(Raw.dsc_bucket_reducer_mark_ready, reducer, index, packed.packed, packed)
end

"Passes the memory of a gradient to the library and keeps `root` alive until the iteration ends."
@inline function mark!(raw, reducer, index, array, root)
    @inbounds reducer.marked[index] = root
    code = GC.@preserve array raw(reducer_handle(reducer), index - 1, Ptr{Cvoid}(pointer(array)), C_NULL)
    code < 0 && throw_last(code)
    return
end

"Throws unless an array can be the gradient of a parameter."
@inline function expect_grad(reducer, index, grad)
    1 <= index <= length(reducer) || wrong_index(reducer, index)
    grad isa AbstractArray && @inbounds(length(grad) == reducer.lengths[index] && eltype(grad) === reducer.types[index]) ||
        wrong_grad(reducer, index, grad)
    return
end

@noinline wrong_index(reducer, index) = invalid("index is $index; expected a parameter from 1 to $(length(reducer))")

@noinline function wrong_grad(reducer, index, grad)
    found = grad isa AbstractArray ? "$(length(grad)) elements of type $(eltype(grad))" : "$(repr(grad))"
    invalid("the gradient of parameter $index, $(leaf_names(reducer.params)[index]), is $found; " *
        "expected $(reducer.lengths[index]) elements of type $(reducer.types[index])")
end

"""
    accumulate!(reducer, index, grad)

Adds a gradient to this rank's sum for a parameter, without marking it ready. For several backward passes per step.
"""
function accumulate!(reducer::Reducer, index::Integer, grad)
    expect_grad(reducer, index, grad)
    source = input(grad)
    GC.@preserve source check(Raw.dsc_bucket_reducer_accumulate(reducer_handle(reducer), index - 1, address(source), C_NULL))
    return
end

"Tells that this rank has no gradient for a parameter: it contributes zeros."
function mark_unused!(reducer::Reducer, index::Integer)
    1 <= index <= length(reducer) || wrong_index(reducer, index)
    check(Raw.dsc_bucket_reducer_mark_unused(reducer_handle(reducer), index - 1))
    return
end
