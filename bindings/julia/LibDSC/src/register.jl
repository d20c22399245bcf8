# Arrays of the program that operations move without copying.

"Registered memory; made by `register`. It ends when the collector finds it unreachable, or by `free`."
mutable struct Registration
    owned::Owned
    Registration(owned::Owned) = finalizer(registration -> drop(registration.owned), new(owned))
end

# An array that an operation still uses stays registered until a later call finds the operation complete.
function free(registration::Registration)
    owned = registration.owned
    owned.release(owned) ? forget(owned) : drop(owned)
    return
end

"""
    register(array, comm) -> Registration
    register(body, array, comm)

Lets operations on `comm`, and on all groups made from it, move a contiguous array without copying. Collective: every
rank registers the same number of bytes. The array keeps its address and its elements. Release the result with
`LibDSC.free`, or give a function as `body`: the registration ends when it returns. Do not resize the array meanwhile.

    LibDSC.register(weights, comm) do
        allreduce!(weights, +, comm)
    end

As long as the registration exists it keeps the array alive. A forked child shares the memory instead of getting a copy.
"""
function register(array::AbstractArray, comm::Comm)
    reap()
    is_contiguous(array) || invalid("the array has strides $(strides(array)); expected contiguous elements")
    isbitstype(eltype(array)) || invalid("the array has elements of type $(eltype(array)); expected numbers")
    start, bytes = Ptr{Cvoid}(pointer(array)), sizeof(eltype(array)) * length(array)
    owned = owned_handle(Cvoid, Raw.dsc_mem_unregister; roots = array) do out
        unsafe_store!(out, start)
        outside_gc(Raw.dsc_mem_register, comm.handle, start, bytes)
    end
    owned.release = entry -> Raw.dsc_mem_unregister(entry.handle) != Raw.DSC_ERR_BUSY
    return Registration(owned)
end

function register(body, array::AbstractArray, comm::Comm)
    registration = register(array, comm)
    try
        return body()
    finally
        free(registration)
    end
end
