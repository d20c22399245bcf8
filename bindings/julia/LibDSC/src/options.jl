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
