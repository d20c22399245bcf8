# Ranks with different numbers of batches.

"""
    join_uneven(body, reducers; params, divide_by_initial = true, throw_on_early_end = false) -> Int

Runs `body`, in which ranks may run different numbers of iterations of `reducers`: one `Reducer`, or several that run in
each iteration. A rank whose `body` has returned takes part in the others' operations, with zeros, until all are done.
Then `params`, a tree of arrays, is copied from the rank that was done last to all ranks, because the others have made
fewer steps; `()` copies nothing. Returns that rank.

    LibDSC.join_uneven(reducer; params = params) do
        for batch in batches # their number may differ between ranks
            grads = gradient(batch)
            reduce!(reducer, grads)
        end
    end

All ranks must call it. Inside `body`, `begin!` and `sync_buffers!` are collective. With `divide_by_initial`, means are
over all ranks; without it, over the ranks that still have batches. With `throw_on_early_end`, all ranks get a
`StateError` as soon as one has no more batches. An exception in `body` ends it without waiting for other ranks.
"""
function join_uneven(body::Function, reducers; params, options...)
    joined = reducers isa Reducer ? Reducer[reducers] : Reducer[reducers...]
    isempty(joined) && invalid("join_uneven: reducers is empty; expected one or more reducers")
    all(is_on_host, leaves(params)) || invalid("join_uneven: an array of params is on a device; expected host memory")
    given, _ = options_of(Raw.dsc_join_options_t, Raw.dsc_join_options_init, "join_uneven", options)
    comm, handles = first(joined).comm, reducer_handle.(joined)
    owned = GC.@preserve joined handles given begin
        list, n, settings = pointer(handles), length(handles), pointer_to(given)
        owned_handle(Raw.dsc_join_t, Raw.dsc_join_destroy; roots = joined) do out
            return outside_gc(Raw.dsc_join_create, comm.handle, list, n, settings, out)
        end
    end
    return freeing(owned) do owned
        body()
        finish_join(Ptr{Raw.dsc_join_t}(owned.handle), leaves(params), leaf_names(params))
    end
end

function finish_join(handle, arrays, names)
    buffers = Any[inout(array) for array in arrays]
    tensors = describe([(eltype(array), size(array)) for array in arrays], address.(buffers), names)
    last = Ref(Int32(-1))
    GC.@preserve buffers tensors last begin
        check(outside_gc(Raw.dsc_join_finish, handle, pointer(tensors.list), length(arrays), pointer_to(last)))
    end
    foreach(unpack, buffers)
    return Int(last[])
end
