# Structs of the C interface: they are isbits, so a changed field means a new value.

"Returns a reference to a struct with all fields 0, except `struct_size`, which is the first field."
function empty_struct(::Type{T}) where {T}
    value = Ref{T}()
    GC.@preserve value begin
        bytes = Ptr{UInt8}(pointer_to(value))
        ccall(:memset, Ptr{Cvoid}, (Ptr{UInt8}, Int32, Csize_t), bytes, 0, sizeof(T))
        unsafe_store!(Ptr{Csize_t}(bytes), sizeof(T))
    end
    return value
end

"Returns options with the library's defaults: `defaults(Raw.dsc_comm_options_t, Raw.dsc_comm_options_init)`."
function defaults(::Type{T}, init) where {T}
    options = empty_struct(T)
    check(init(options, sizeof(T)))
    return options[]
end

pointer_to(value::Ref{T}) where {T} = Base.unsafe_convert(Ptr{T}, value)

# Large structs are read field by field, because compiling a copy of the whole takes seconds.

"Returns a number of a struct, or entry `i` of an array of numbers."
function field(value::Ref{T}, name::Symbol, i = 1) where {T}
    index = Base.fieldindex(T, name)
    type = fieldtype(T, index) <: Tuple ? eltype(fieldtype(T, index)) : fieldtype(T, index)
    return GC.@preserve value unsafe_load(Ptr{type}(pointer_to(value) + fieldoffset(T, index)), i)
end

"Returns the text in a fixed-size field of a struct."
text(value::Ref{T}, name::Symbol) where {T} =
    GC.@preserve value unsafe_string(Ptr{UInt8}(pointer_to(value) + fieldoffset(T, Base.fieldindex(T, name))))

"Returns a copy of a struct with some fields replaced."
changed(value::T; changes...) where {T} =
    T((convert(fieldtype(T, name), get(changes, name, getfield(value, name))) for name in fieldnames(T))...)

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
