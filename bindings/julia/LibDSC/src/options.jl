# Options of calls, given as keywords with the names of the fields in the library's struct. Times are in seconds.

"""
Returns the options of a call, as a reference to the library's struct, and the texts that it points to. The caller keeps
both alive during the call.
"""
function options_of(::Type{T}, init, call, given) where {T}
    changes, texts = Dict{Symbol, Any}(), String[]
    for (option, value) in given
        name = option === :timeout ? :timeout_ms : option
        name in settable(T) || unknown_option(T, call, option)
        changes[name] = option_value(fieldtype(T, name), name, value, texts)
    end
    return Ref(changed(defaults(T, init); changes...)), texts
end

"The fields that a keyword may set. Lists and objects are arguments of the Julia functions."
settable(::Type{T}) where {T} = filter(fieldnames(T)) do name
    return !(name in (:struct_size, :reserved)) && !(fieldtype(T, name) <: Ptr)
end

@noinline function unknown_option(T, call, option)
    known = [name === :timeout_ms ? :timeout : name for name in settable(T)]
    invalid("$call has no option `$option`; expected one of $(join(known, ", "))")
end

option_value(type, name, value, texts) = convert(type, name === :timeout_ms ? milliseconds(value) : value)

function option_value(::Type{Cstring}, name, value, texts)
    push!(texts, String(value))
    return Base.unsafe_convert(Cstring, last(texts))
end

# Enumerations are symbols: the end of the library's name.
const ENUMERATIONS = (average = "DSC_AVERAGE_", rebuild = "DSC_REBUILD_", norm = "DSC_NORM_",
    messages = "DSC_PIPE_MESSAGES_", placement = "DSC_PIPE_PLACEMENT_", layout = "DSC_SHARD_LAYOUT_")

option_value(type, name, value::Symbol, texts) =
    haskey(ENUMERATIONS, name) ? enumerator(ENUMERATIONS[name], name, value) : invalid("$name is :$value; expected a number")

function option_value(type, name, value::Type, texts)
    number = dtype(value)
    number === nothing && invalid("$name is $value; expected a number type that the library knows")
    return number
end

"Returns the value of an enumeration by the end of its name."
function enumerator(prefix, what, value::Symbol)
    name = Symbol(prefix, uppercase(string(value)))
    isdefined(Raw, name) && return getfield(Raw, name)
    known = [lowercase(text[length(prefix) + 1:end]) for text in string.(names(Raw; all = true)) if startswith(text, prefix)]
    invalid("$what is :$value; expected one of :$(join(known, ", :"))")
end
