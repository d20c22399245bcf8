# Reduce operations: Julia's functions for which the library has an operation, and numbers of the library.

"""
A reduce operation of the library that is not a function of Julia: `LibDSC.AVG`, the mean over the ranks, or the result
of `premul`.
"""
struct Op
    number::Raw.dsc_op_t
    name::String
end

const AVG = Op(Raw.DSC_OP_AVG, "avg")

Base.show(io::IO, op::Op) = print(io, "LibDSC.Op(", op.name, ")")

"Number types of which the library computes sums, products and extrema."
const Native = Union{Int8, UInt8, Int32, UInt32, Int64, UInt64, Float16, Float32, Float64}
const NativeBits = Union{Int8, UInt8, Int32, UInt32, Int64, UInt64, Bool}

"""
Returns the library's number for an operation on elements of a type, or `nothing` if there is none. Then the ranks
gather the elements and every rank evaluates the function itself.
"""
native(op, ::Type) = nothing
native(::typeof(+), ::Type{<:Native}) = Raw.DSC_OP_SUM
native(::typeof(+), ::Type{<:Complex{<:Union{Float16, Float32, Float64}}}) = Raw.DSC_OP_SUM
native(::typeof(*), ::Type{<:Native}) = Raw.DSC_OP_PROD
native(::typeof(max), ::Type{<:Union{Native, Bool}}) = Raw.DSC_OP_MAX
native(::typeof(min), ::Type{<:Union{Native, Bool}}) = Raw.DSC_OP_MIN
native(::typeof(&), ::Type{<:NativeBits}) = Raw.DSC_OP_BAND
native(::typeof(|), ::Type{<:NativeBits}) = Raw.DSC_OP_BOR
native(::typeof(xor), ::Type{<:NativeBits}) = Raw.DSC_OP_BXOR
native(op::Op, ::Type) = op.number

"""
    premul(body, scale)

Calls `body` with an operation that multiplies every input by `scale` when it is read and sums the products. All ranks
must use the same scale; the elements must be floating-point numbers.
"""
function premul(body::Function, scale::Real)
    number = Ref{Raw.dsc_op_t}(0)
    check(Raw.dsc_op_create_premul(Float64(scale), number))
    try
        return body(Op(number[], "premul $scale"))
    finally
        Raw.dsc_op_destroy(number[])
    end
end
