# The memory that an operation uses.
#
# An array whose elements are contiguous is used as it is, in Julia's column-major order: a part of a buffer is a part
# along its last dimension, so nothing is ever transposed. Other arrays and views are copied into a vector before the
# operation and back after it.

struct InPlace end

"As the send buffer of an operation: the data is in the receive buffer, and is replaced there by the result."
const IN_PLACE = InPlace()

"Whether a send buffer stands for the receive buffer. The extension for MPI.jl adds its own word."
@inline in_place(::Any) = false
@inline in_place(::InPlace) = true

struct Dense{A}
    array::A
end

struct Packed{A, E}
    array::A
    packed::Vector{E}
end

const Buffer = Union{Dense, Packed}

is_contiguous(::DenseArray) = true
is_contiguous(::Ref) = true
is_contiguous(::Any) = false

function is_contiguous(array::StridedArray)
    expected = 1
    for dimension in 1:ndims(array)
        size(array, dimension) == 1 || stride(array, dimension) == expected || return false
        expected *= size(array, dimension)
    end
    return true
end

"A buffer that the operation reads."
@inline input(array) = is_contiguous(array) ? Dense(array) : Packed(array, vec(collect(array)))

"A buffer that the operation writes."
@inline output(array) =
    is_contiguous(array) ? Dense(array) : Packed(array, Vector{eltype(array)}(undef, length(array)))

"A buffer that the operation reads and writes."
@inline inout(array) = input(array)

@inline address(buffer::Packed) = Ptr{Cvoid}(pointer(buffer.packed))
@inline address(buffer::Dense{<:AbstractArray}) = Ptr{Cvoid}(pointer(buffer.array))
@inline address(buffer::Dense{<:Ref{T}}) where {T} = Ptr{Cvoid}(Base.unsafe_convert(Ptr{T}, buffer.array))

"Writes the result to the caller's array, if the operation used a copy."
@inline unpack(::Dense) = nothing

# A loop, because copyto! of Julia 1.5 writes out of bounds if a PermutedDimsArray has another shape than the source.
function unpack(buffer::Packed)
    for (index, value) in zip(eachindex(buffer.array), buffer.packed)
        buffer.array[index] = value
    end
    return
end

@inline count_of(array::AbstractArray) = length(array)
@inline count_of(::Ref) = 1
@noinline count_of(other) = invalid("a buffer has type $(typeof(other)); expected an array or a Ref")

"Throws unless a buffer has the expected number of elements."
@inline expect_count(what, array, expected) = count_of(array) == expected || wrong_count(what, count_of(array), expected)

@noinline wrong_count(what, found, expected) = invalid("$what has $found elements; expected $expected")

@inline expect_same_type(send, recv) = eltype(send) === eltype(recv) || wrong_types(eltype(send), eltype(recv))

@noinline wrong_types(sent, received) = invalid("send has elements of type $sent; expected $received, as in recv")

"Throws unless a number is a rank of the communicator."
@inline expect_rank(what, rank, comm) = 0 <= rank < comm.size || wrong_rank(what, rank, comm)

@noinline wrong_rank(what, rank, comm) = invalid("$what is $rank; expected 0 to $(comm.size - 1)")
