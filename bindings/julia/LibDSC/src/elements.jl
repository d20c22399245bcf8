# Julia's element types as types of the library.

"""
    dtype(T)

Returns the library's number of an element type, or `nothing`. Packages with other types, such as BFloat16s.jl, can add
methods: `LibDSC.dtype(::Type{BFloat16}) = LibDSC.Raw.DSC_DTYPE_BF16`.
"""
dtype(::Type) = nothing

for (type, number) in (
    (Int8, :DSC_DTYPE_I8), (UInt8, :DSC_DTYPE_U8), (Int32, :DSC_DTYPE_I32), (UInt32, :DSC_DTYPE_U32),
    (Int64, :DSC_DTYPE_I64), (UInt64, :DSC_DTYPE_U64), (Float16, :DSC_DTYPE_F16), (Float32, :DSC_DTYPE_F32),
    (Float64, :DSC_DTYPE_F64), (Bool, :DSC_DTYPE_BOOL),
)
    @eval dtype(::Type{$type}) = Raw.$number
end

"""
Returns how elements travel when nothing is computed, as type and number of such elements per Julia element. Every
isbits type can travel; types that the library does not know go as bytes.
"""
@inline function carrier(::Type{T}) where {T}
    isbitstype(T) || invalid("elements of type $T cannot be sent; expected an isbits type, or bcast() for objects")
    number = dtype(T)
    return number === nothing ? (Raw.DSC_DTYPE_U8, sizeof(T)) : (number, 1)
end

@inline carrier(::Type{Complex{T}}) where {T <: Union{Float16, Float32, Float64}} = (dtype(T), 2)
