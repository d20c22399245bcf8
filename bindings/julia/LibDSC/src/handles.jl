# Objects with one handle: stores, meshes, schedules, reducers. They are released when the collector finds them
# unreachable, or by `free`.

"""
Calls `create` with a place for a new handle, and returns an entry that releases it with `destroy`. It keeps `roots`
alive until then.
"""
function owned_handle(create, ::Type{T}, destroy; roots = nothing) where {T}
    reap()
    handle = Ref{Ptr{T}}(C_NULL)
    owned = own(owned -> (destroy(Ptr{T}(owned.handle)); true), roots)
    code = GC.@preserve handle create(pointer_to(handle))
    if code < 0
        failure = last_error(code) # before forget(), which may wait for a lock, and other tasks fail meanwhile
        forget(owned)
        throw(failure)
    end
    owned.handle = handle[]
    return owned
end

"Releases an object. Later calls on it fail with `BadHandleError`."
function free(owned::Owned)
    owned.release(owned)
    forget(owned)
    return
end

"Calls `body` with an object, and releases it afterwards."
function freeing(body, object)
    try
        return body(object)
    finally
        free(object)
    end
end

"Returns the number that a function writes to its last argument."
function number_of(query, ::Type{T} = Int32) where {T}
    number = Ref{T}(0)
    check(query(number))
    return Int(number[])
end

"Returns the list that a function writes to its last three arguments: entries, capacity, needed."
function list_of(fill, ::Type{T}) where {T}
    entries, needed = T[], Ref{Csize_t}(0)
    while true
        check(fill(entries, length(entries), needed))
        complete = needed[] <= length(entries)
        resize!(entries, needed[])
        complete && return entries
    end
end

"Returns the list of structs that a function writes to its last three arguments: entries, capacity, needed."
function structs_of(fill_list, ::Type{T}) where {T}
    needed = Ref{Csize_t}(0)
    check(fill_list(Ptr{T}(C_NULL), 0, needed))
    entries = fill(empty_struct(T)[], needed[])
    check(fill_list(entries, length(entries), needed))
    return entries
end

const NO_TEXT = Cstring(C_NULL)

"The address of a text for calls in which nothing may be allocated. The caller keeps the text alive."
address(text::String) = Base.unsafe_convert(Cstring, text)

"Returns an array over memory that belongs to `owner`, which the array keeps alive."
function array_over(owner, ::Type{T}, place, dimensions) where {T}
    array = unsafe_wrap(Array, Ptr{T}(place), dimensions)
    isempty(array) || finalizer(_ -> owner, kept_by_views(array)) # the closure keeps the owner
    return array
end

"""
What `vec` and `reshape` of an array keep alive: before Julia 1.11 the array itself, and then the `Memory` below it,
which all these arrays share.
"""
kept_by_views(array::Array) = isdefined(Core, :GenericMemory) ? array.ref.mem : array
