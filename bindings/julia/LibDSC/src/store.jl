"""
    Store(uri; options...)
    Store(body, uri; options...)

Opens a key-value store: small values that the processes of a job share. `uri` is "memory://", "file:///PATH" or
"tcp://HOST:PORT". Keys are texts; values are texts or bytes.

- `store[key] = value` sets a key
- `store[key]` waits for it and returns the bytes; `String(store[key])` the text
- `haskey(store, key)`, `delete!(store, key)`, `append!(store, key, value)` and `length(store)` do not wait
- `LibDSC.add!(store, key, amount)` adds to a counter
- `LibDSC.compare_set!(store, key, expected, desired)` sets a key if it has the expected value

Options: `serve` (this process is the TCP server), `world_size`, `timeout` in seconds, `token`, `job_id`, `bind`,
`allow_unauthenticated`. A store is released by `LibDSC.free`, at the end of `body`, or by the collector. Tasks of this
thread do not run while a call waits; any thread may make any call.
"""
mutable struct Store
    owned::Owned
    Store(owned::Owned) = finalizer(store -> drop(store.owned), new(owned))
end

const Value = Union{AbstractString, AbstractVector{UInt8}}

function Store(uri::AbstractString; options...)
    given, texts = options_of(Raw.dsc_store_options_t, Raw.dsc_store_options_init, "Store", options)
    name = String(uri)
    GC.@preserve given texts name begin
        place, settings = address(name), pointer_to(given)
        return Store(owned_handle(out -> outside_gc(Raw.dsc_store_open, place, settings, out), Raw.dsc_store_t,
            Raw.dsc_store_destroy))
    end
end

Store(body::Function, uri::AbstractString; options...) = freeing(body, Store(uri; options...))

store_handle(store::Store) = Ptr{Raw.dsc_store_t}(store.owned.handle)
free(store::Store) = free(store.owned)
Base.show(io::IO, store::Store) = print(io, "LibDSC.Store(", store.owned.handle, ")")

"""
    prefix(store, text) -> Store

Returns a part of a store: its key k is "TEXT/k" of the whole.
"""
prefix(store::Store, text::AbstractString) = Store(owned_handle(Raw.dsc_store_t, Raw.dsc_store_destroy) do out
    return Raw.dsc_store_prefix(store_handle(store), String(text), out)
end)

"Returns the port at which this process serves a store."
port(store::Store) = number_of(out -> Raw.dsc_store_port(store_handle(store), out))

"Calls a function that takes a key, and a value as pointer and length."
function exchange(raw, store::Store, key, value, rest...)
    name, bytes = String(key), bytes_of(value)
    GC.@preserve name bytes rest begin
        return check(outside_gc(raw, store_handle(store), address(name), Ptr{Cvoid}(pointer(bytes)),
            length(bytes), rest...))
    end
end

bytes_of(text::AbstractString) = Vector{UInt8}(codeunits(String(text)))
bytes_of(bytes::AbstractVector{UInt8}) = convert(Vector{UInt8}, bytes)

Base.setindex!(store::Store, value::Value, key::AbstractString) = (exchange(Raw.dsc_store_set, store, key, value); store)
Base.append!(store::Store, key::AbstractString, value::Value) = (exchange(Raw.dsc_store_append, store, key, value); store)
Base.getindex(store::Store, key::AbstractString) = fetch(store, key)

"""
    fetch(store, key; timeout) -> Vector{UInt8}

Waits until a key is set and returns its value. `timeout` is in seconds; by default it is that of the store.
"""
function Base.fetch(store::Store, key::AbstractString; timeout::Union{Real, Nothing} = nothing)
    name, limit = String(key), store_timeout(timeout)
    return list_of(UInt8) do room, capacity, needed
        GC.@preserve name room needed outside_gc(Raw.dsc_store_get, store_handle(store), address(name), limit,
            Ptr{Cvoid}(pointer(room)), capacity, pointer_to(needed))
    end
end

store_timeout(seconds) = seconds === nothing ? Int32(-1) : milliseconds(seconds)

"""
    wait(store, keys; timeout)

Waits until all keys are set. The error names the missing ones.
"""
function Base.wait(store::Store, keys::AbstractVector{<:AbstractString}; timeout::Union{Real, Nothing} = nothing)
    with_texts(keys) do list, n
        return check(outside_gc(Raw.dsc_store_wait, store_handle(store), list, n, store_timeout(timeout)))
    end
    return
end

"Calls a function with a list of texts, as pointer and length."
function with_texts(call, texts)
    strings = String[text for text in texts]
    pointers = Cstring[address(text) for text in strings]
    return GC.@preserve strings pointers call(pointer(pointers), length(pointers))
end

function Base.haskey(store::Store, key::AbstractString)
    present = Ref{Int32}(0)
    with_texts((list, n) -> GC.@preserve(present,
        check(outside_gc(Raw.dsc_store_check, store_handle(store), list, n, pointer_to(present)))), [key])
    return present[] != 0
end

"Removes a key, if it is set."
function Base.delete!(store::Store, key::AbstractString)
    name = String(key)
    GC.@preserve name check(outside_gc(Raw.dsc_store_delete, store_handle(store), address(name), Ptr{Int32}(C_NULL)))
    return store
end

Base.length(store::Store) = number_of(out -> Raw.dsc_store_count(store_handle(store), out), Int64)

"""
    add!(store, key, amount) -> Int

Adds to a counter, which is 0 if the key is not set, and returns the sum. The value is stored as decimal text.
"""
function add!(store::Store, key::AbstractString, amount::Integer)
    name, sum = String(key), Ref{Int64}(0)
    GC.@preserve name sum check(outside_gc(Raw.dsc_store_add, store_handle(store), address(name), Int64(amount),
        pointer_to(sum)))
    return Int(sum[])
end

"""
    compare_set!(store, key, expected, desired) -> Vector{UInt8}

Sets a key to `desired` if its value is `expected`; an empty one stands for a key that is not set. Returns the value
afterwards.
"""
function compare_set!(store::Store, key::AbstractString, expected::Value, desired::Value)
    bytes = bytes_of(desired)
    # A larger room than any value, because a second call would compare again.
    room, needed = Vector{UInt8}(undef, 1 << 20), Ref{Csize_t}(0)
    GC.@preserve bytes room needed exchange(Raw.dsc_store_compare_set, store, key, expected, Ptr{Cvoid}(pointer(bytes)),
        length(bytes), Ptr{Cvoid}(pointer(room)), length(room), pointer_to(needed))
    return resize!(room, needed[])
end
