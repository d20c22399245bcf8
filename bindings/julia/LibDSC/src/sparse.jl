# Gradients of which only some slices are not zero, such as those of an embedding.

"""
    mark_sparse!(reducer, index, slices, values)

Like `mark_ready!`, for a gradient that is zero outside some slices of its last dimension, such as the columns of an
embedding. `slices` has their numbers, from 1, which may repeat. `values` has them one after another in its last
dimension. The parameter must be one of the `sparse` ones of the reducer. `finish!` gathers the slices of all ranks;
`sparse_grad` returns the means. The arguments are copied. Any thread may call it.
"""
function mark_sparse!(reducer::Reducer, index::Integer, slices, values)
    1 <= index <= length(reducer) || wrong_index(reducer, index)
    param, rows = leaves(reducer.params)[index], Int64[slice - 1 for slice in slices]
    all(row -> 0 <= row < size(param, ndims(param)), rows) ||
        invalid("slices of parameter $index are $(rows .+ 1); expected numbers from 1 to $(size(param, ndims(param)))")
    type, n = reducer.types[index], length(rows) * prod(size(param)[1:end - 1])
    values isa AbstractArray && eltype(values) === type && length(values) == n ||
        invalid("the values for $(length(rows)) slices of parameter $index are $(summary(values)); expected $n elements of type $type")
    source = input(values)
    GC.@preserve rows source begin
        check(Raw.dsc_bucket_reducer_mark_sparse(reducer_handle(reducer), index - 1, pointer(rows), address(source), length(rows)))
    end
    return
end

"""
    sparse_grad(reducer, index) -> (slices, values)

Returns the means of a sparse gradient after an iteration, as copies: the numbers of slices, and an array with these
slices in its last dimension. Other slices are zero.
"""
function sparse_grad(reducer::Reducer, index::Integer)
    1 <= index <= length(reducer) || wrong_index(reducer, index)
    rows, place, n = Ref{Ptr{Int64}}(C_NULL), Ref{Ptr{Cvoid}}(C_NULL), Ref{Csize_t}(0)
    GC.@preserve reducer begin
        check(Raw.dsc_bucket_reducer_sparse(reducer_handle(reducer), index - 1, rows, place, n))
        param, count = leaves(reducer.params)[index], Int(n[])
        values = similar(Array{eltype(param)}, (size(param)[1:end - 1]..., count))
        count == 0 && return Int[], values
        copyto!(values, unsafe_wrap(Array, Ptr{eltype(param)}(place[]), size(values)))
        return Int.(unsafe_wrap(Array, rows[], count)) .+ 1, values
    end
end
