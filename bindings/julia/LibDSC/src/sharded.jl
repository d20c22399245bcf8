"""
    Sharded(comm, params; stage = 2, units, options...)

Shards gradients, the state of the optimizer and, in stage 3, parameters over the ranks (ZeRO 1 to 3, FSDP). `params` is
a tree of arrays as for `Reducer`, in forward order; by default all ranks take the values of rank 0. One step:

    reduce!(sharded) do
        for u in reverse(eachindex(sharded.units))      # backward: the last unit first
            LibDSC.unit(sharded, u) do arrays           # the full parameters of the unit
                for (i, grad) in backward(u, arrays)
                    mark_ready!(sharded, i, grad)       # the last one of a unit starts its reduction
                end
            end
        end
    end
    for (shard, state) in zip(sharded.shards, states)   # the optimizer updates only this rank's shards
        update!(state, shard.params, shard.grads)
    end
    LibDSC.step_done!(sharded)

- `sharded.shards`: this rank's part of each bucket, a vector of `Shard`
- `sharded.units`: the parameters of each unit. Units and parameters have numbers from 1

Options are those of docs/sharding.md: `stage`, `average` (such as `:pre`), `grad_dtype`, `max_live_bytes`, `shard_size`,
`prefetch`, `sync`; and of the layout: `units`, the first parameter of each unit, or `bucket_elements`, `alignment`,
`layout` (such as `:deepspeed`) and `wide_padding`.
"""
mutable struct Sharded
    owned::Owned
    comm::Comm
    sizes::Vector{Tuple{DataType, Dims}}
    units::Vector{Vector{Int}}
    shards::Vector{Any}

    function Sharded(comm::Comm, params; units = nothing, options...)
        arrays = leaves(params)
        all(is_on_host, arrays) || invalid("Sharded: a parameter is on a device; expected arrays in host memory")
        sizes = Tuple{DataType, Dims}[(eltype(array), size(array)) for array in arrays]
        owned = create_sharded(comm, leaf_names(params), Any[input(array) for array in arrays], sizes, units, options)
        sharded = new(owned, comm, sizes, Vector{Int}[], Any[])
        finalizer(sharded -> drop(sharded.owned), sharded)
        append!(sharded.units, units_of(sharded))
        append!(sharded.shards, shards_of(sharded))
        return sharded
    end
end

Sharded(body::Function, comm::Comm, params; options...) = freeing(body, Sharded(comm, params; options...))

expect_units(units, n) = (isempty(units) || first(units) == 1) && issorted(units; lt = <=) && all(<=(n), units) ||
    invalid("units is $units; expected the first parameter of each unit: ascending numbers from 1 to at most $n")

const LAYOUT_OPTIONS = (:bucket_elements, :alignment, :layout, :wide_padding)

function create_sharded(comm, names, buffers, sizes, units, options)
    is_of_layout((name, _)) = name in LAYOUT_OPTIONS
    of_layout, others = filter(is_of_layout, collect(options)), filter(!is_of_layout, collect(options))
    plan, starts = layout_of("Sharded", length(sizes), units, of_layout)
    given, _ = options_of(Raw.dsc_sharded_options_t, Raw.dsc_sharded_options_init, "Sharded", others)
    tensors = describe(sizes, address.(buffers), names)
    GC.@preserve plan starts tensors given buffers begin
        given[] = changed(given[]; plan = pointer_to(plan))
        list, n, settings = pointer(tensors.list), length(tensors.list), pointer_to(given)
        return owned_handle(Raw.dsc_sharded_t, Raw.dsc_sharded_destroy; roots = comm) do out
            return outside_gc(Raw.dsc_sharded_create, comm.handle, list, n, settings, out)
        end
    end
end

"Returns the options of a layout of `n` parameters, and the first parameters of its units, to which they point."
function layout_of(call, n, units, options)
    plan, _ = options_of(Raw.dsc_shard_plan_options_t, Raw.dsc_shard_plan_options_init, call, options)
    units === nothing && return plan, Csize_t[]
    expect_units(units, n)
    starts = Csize_t[first - 1 for first in units]
    plan[] = changed(plan[]; unit_starts = pointer(starts), n_units = length(starts))
    return plan, starts
end

sharded_handle(sharded::Sharded) = Ptr{Raw.dsc_sharded_t}(sharded.owned.handle)

Base.length(sharded::Sharded) = length(sharded.sizes)
Base.show(io::IO, sharded::Sharded) =
    print(io, "LibDSC.Sharded(", length(sharded), " parameters, ", length(sharded.units), " units)")

"Ends this rank's part in sharded parameters. Shards stay valid until the collector finds them unreachable."
function free(sharded::Sharded)
    check(outside_gc(Raw.dsc_sharded_close, sharded_handle(sharded)))
    return
end

function units_of(sharded)
    units, buckets, starts = [zeros(Csize_t, length(sharded)) for _ in 1:3]
    n, shard, shards = Ref{Csize_t}(0), Ref{Csize_t}(0), Ref{Csize_t}(0)
    check(Raw.dsc_sharded_locations(sharded_handle(sharded), units, buckets, starts, n, shard, shards))
    return [findall(==(unit), units) for unit in 0:Int(n[]) - 1]
end

"""
This rank's part of a bucket: `count` elements from element `start` of the bucket, from 1. The optimizer reads `grads`
and writes `params`, which are vectors over the library's memory.
"""
struct Shard{P, G}
    params::Vector{P}
    grads::Vector{G}
    unit::Int
    bucket::Int
    start::Int
    count::Int
end

shards_of(sharded) = map(sharded_list(Raw.dsc_sharded_shards, Raw.dsc_sharded_shard_t, sharded)) do raw
    vector(dtype, place) = array_over(sharded, number_type(sharded, dtype), place, (Int(raw.count),))
    return Shard(vector(raw.dtype, raw.params), vector(raw.grad_dtype, raw.grads), Int(raw.unit) + 1,
        Int(raw.bucket) + 1, Int(raw.start) + 1, Int(raw.count))
end

sharded_list(raw, type, sharded) = structs_of((room...) -> raw(sharded_handle(sharded), room...), type)

"The type of Julia for a number of the library: that of a parameter, or a type of Julia itself."
function number_type(sharded, number)
    types = Iterators.flatten(((real(type) for (type, _) in sharded.sizes), (Float16, Float32)))
    for type in types
        dtype(type) == number && return type
    end
    throw(error_of(Raw.DSC_ERR_UNSUPPORTED, "Sharded: Julia has no type for gradients of the type $number"))
end

"""
    ranges(sharded)

Returns the parts of parameters that this rank's shards hold, as named tuples: the elements `param_range` of `param` are
the elements `shard_range` of the shard of `bucket`. Other elements of shards are padding.
"""
ranges(sharded::Sharded) = map(sharded_list(Raw.dsc_sharded_ranges, Raw.dsc_sharded_range_t, sharded)) do raw
    elements(start) = Int(start) + 1:Int(start + raw.count)
    return (param = Int(raw.param) + 1, param_range = elements(raw.param_start), bucket = Int(raw.bucket) + 1,
        shard_range = elements(raw.shard_start))
end

"Returns the bytes that sharded parameters hold on this rank, as a named tuple."
function memory_info(sharded::Sharded)
    info = empty_struct(Raw.dsc_sharded_memory_info_t)
    check(Raw.dsc_sharded_memory_info(sharded_handle(sharded), info))
    names = fieldnames(Raw.dsc_sharded_memory_info_t)[2:end]
    return NamedTuple{names}(Int(field(info, name)) for name in names)
end

"""
    shard_copies(params, from, to, shard)

Lists what one shard of a layout takes from the shards of another layout of the same parameters. So m ranks can read a
checkpoint of n ranks. `from` and `to` are named tuples: `shards`, the number of shards, and options of the layout as
`Sharded` has them, such as `(shards = 4, layout = :deepspeed)`. `shard` is a shard of the new layout. Shards have
numbers from 0, like ranks. Needs no ranks.

Returns named tuples: elements `from_range` of the shard `from_shard` of `from_bucket` are elements `to_range` of the new
shard of `to_bucket`, and belong to `param`.
"""
function shard_copies(params, from::NamedTuple, to::NamedTuple, shard::Integer)
    carriers = [(length(array), carrier(eltype(array))...) for array in leaves(params)]
    counts, types = Csize_t[n * width for (n, _, width) in carriers], Raw.dsc_dtype_t[type for (_, type, _) in carriers]
    layouts = [layout_of_copy(given, length(counts)) for given in (from, to)]
    copies = GC.@preserve layouts structs_of(Raw.dsc_shard_copy_t) do room...
        return Raw.dsc_shard_copies(counts, types, length(counts), from.shards, first(layouts[1]), to.shards,
            first(layouts[2]), shard, room...)
    end
    elements(start, n) = Int(start) + 1:Int(start + n)
    return map(copies) do copy
        return (param = Int(copy.param) + 1, from_shard = Int(copy.from_shard), from_bucket = Int(copy.from_bucket) + 1,
            from_range = elements(copy.from_start, copy.count), to_bucket = Int(copy.to_bucket) + 1,
            to_range = elements(copy.to_start, copy.count))
    end
end

function layout_of_copy(given, n)
    haskey(given, :shards) || invalid("shard_copies: $given has no `shards`; expected their number, such as (shards = 4,)")
    options = filter(((name, _),) -> !(name in (:shards, :units)), collect(pairs(given)))
    return layout_of("shard_copies", n, get(given, :units, nothing), options)
end
