# Reductions by functions that the library does not know.
#
# The library evaluates functions of its op.h on any of its threads, and Julia before 1.9 cannot run there. So the ranks
# gather the elements in pieces, and combine them in rank order on the calling thread.

"A rank gathers pieces of this many bytes from every rank."
const PIECE_BYTES = 1 << 18

"Returns the library's number of an operation. Throws if there is none."
function known_op(op, type, name)
    number = native(op, type)
    number === nothing || return number
    throw(error_of(Raw.DSC_ERR_UNSUPPORTED,
        "$name: the library has no operation $op for elements of type $type; expected +, *, max, min, &, |, xor or " *
        "LibDSC.AVG with a type that supports it, or use allreduce!, reduce! or alltoall! and your function"))
end

"""
Returns the library's number of an operation, or `nothing` if the ranks call it as a function. What cannot be called or
sent is refused here, because later other ranks would already wait.
"""
@inline function number_or_function(op, type)
    number = native(op, type)
    number === nothing && expect_function(op, type)
    return number
end

@noinline function expect_function(op, type)
    carrier(type)
    hasmethod(op, Tuple{type, type}) || invalid("op is $(repr(op)); expected +, *, max, min, &, |, xor, LibDSC.AVG, " *
        "or a function of two elements of type $type")
    return
end

fold_all(::Started, source, target, op, comm) = not_started("iallreduce!", op, source)
fold_root(::Started, source, target, op, comm, root) = not_started("ireduce!", op, source)

@noinline not_started(name, op, source) = throw(error_of(Raw.DSC_ERR_UNSUPPORTED,
    "$name: the library has no operation $op for elements of type $(eltype(source.array)), and cannot call functions " *
    "of Julia in the background; use the blocking form, or gather the elements and combine them"))

function fold_all(::Blocking, source, target, op, comm)
    fold_pieces(memory(source), memory(target), op, comm) do send, recv
        _allgather(Blocking(), send, recv, comm)
        return true
    end
    unpack(target)
    return result_of(target)
end

function fold_root(::Blocking, source, target, op, comm, root)
    elements = memory(source)
    result = target === nothing ? similar(elements, 0) : memory(target)
    fold_pieces(elements, result, op, comm) do send, recv
        _gather(Blocking(), send, recv, comm, root)
        return comm.rank == root
    end
    target === nothing && return nothing
    unpack(target)
    return result_of(target)
end

"The elements of a buffer as a vector over the same memory."
memory(buffer::Packed) = buffer.packed
memory(buffer::Dense{<:AbstractArray}) = vec(buffer.array)
memory(buffer::Dense{<:Ref{T}}) where {T} =
    unsafe_wrap(Vector{T}, Base.unsafe_convert(Ptr{T}, buffer.array), 1)

"""
Gathers the elements piece by piece and combines them where `gather` returns true. A function that throws does not end
the loop, because other ranks would wait; all ranks learn of it at the end.
"""
function fold_pieces(gather, elements::AbstractVector{T}, result, op, comm) where {T}
    piece = max(1, PIECE_BYTES ÷ max(1, sizeof(T)))
    failure = nothing
    for first in 1:piece:length(elements)
        range = first:min(first + piece - 1, length(elements))
        gathered = Matrix{T}(undef, length(range), comm.size)
        gather(elements[range], gathered) && failure === nothing || continue
        try
            combine!(view(result, range), gathered, op)
        catch error
            failure = error
        end
    end
    agree_on_failure(failure, op, comm)
end

function combine!(result, gathered::Matrix{T}, op) where {T}
    for i in 1:size(gathered, 1)
        value = gathered[i, 1]
        for rank in 2:size(gathered, 2)
            value = convert(T, op(value, gathered[i, rank]))
        end
        result[i] = value
    end
end

"Throws `CallbackError` on all ranks if the function failed on one; it names the first of these ranks and its error."
function agree_on_failure(failure, op, comm)
    failed = findall(!iszero, allgather(UInt8(failure !== nothing), comm)) .- 1
    isempty(failed) && return
    said = bcast(failure === nothing ? "" : sprint(showerror, failure), comm; root = failed[1])
    message = "the function $op failed on rank $(failed[1]) of group \"$(comm.name)\": $said"
    throw(error_of(Raw.DSC_ERR_CALLBACK, message; rank = failed[1], ranks = failed, group = comm.name))
end
