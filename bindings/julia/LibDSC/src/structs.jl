# Structs of the C interface: they are isbits, so a changed field means a new value.

zero_of(::Type{T}) where {T <: Ptr} = T(C_NULL)
zero_of(::Type{Cstring}) = Cstring(C_NULL)
zero_of(::Type{T}) where {T <: Tuple} = map(zero_of, Tuple(T.parameters))
zero_of(::Type{T}) where {T} = zero(T)

"Returns a struct with all fields 0, except `struct_size`."
empty_struct(::Type{T}) where {T} =
    T(ntuple(i -> fieldname(T, i) === :struct_size ? sizeof(T) : zero_of(fieldtype(T, i)), fieldcount(T))...)

"Returns options with the library's defaults: `defaults(Raw.dsc_comm_options_t, Raw.dsc_comm_options_init)`."
function defaults(::Type{T}, init) where {T}
    options = Ref(empty_struct(T))
    check(init(options, sizeof(T)))
    return options[]
end

"Returns a copy of a struct with some fields replaced."
changed(value::T; changes...) where {T} =
    T((convert(fieldtype(T, name), get(changes, name, getfield(value, name))) for name in fieldnames(T))...)

"Returns the text in a fixed-size field."
text(field::NTuple{N, UInt8}) where {N} = String(collect(Iterators.takewhile(!iszero, field)))

"Returns the text that a function writes to its last three arguments: buffer, capacity, needed."
function text_of(fill)
    needed = Ref{Csize_t}(256)
    while true
        buffer = Vector{UInt8}(undef, needed[])
        check(fill(buffer, length(buffer), needed)) == Raw.DSC_TRUNCATED && continue
        return String(resize!(buffer, needed[] - 1))
    end
end

milliseconds(seconds) = round(Int32, 1000 * seconds)
