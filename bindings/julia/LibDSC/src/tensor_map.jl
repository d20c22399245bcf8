# The exchanges of tensor and sequence parallelism, with the library's mappings.
#
# The library views a tensor as [outer, dim, inner] in row-major order. Julia's arrays are column-major, which is
# row-major with reversed dimensions: so for dimension d of an array, `inner` is the product of the sizes before d, and
# `outer` of those after it. Nothing is transposed.

const MAPPINGS = (:copy, :reduce, :scatter, :gather, :gather_reduce, :reduce_scatter)

"""
    tensor_map(mapping, x, dim, comm; backward = false, parts = nothing) -> Array
    tensor_map!(y, mapping, x, dim, comm; backward = false, parts = nothing)

Performs a step of a tensor-parallel mapping on an array that the ranks divide along dimension `dim`. Backward steps
move gradients and take the same mapping and dimension.

- `:copy`: forward the whole as it is; backward the sum over the ranks
- `:reduce`: forward the sum; backward the whole as it is
- `:scatter`: forward this rank's part; backward all parts
- `:gather`: forward all parts; backward this rank's part
- `:gather_reduce`: forward all parts; backward this rank's part of the sum
- `:reduce_scatter`: forward this rank's part of the sum; backward all parts

`parts` lists the size of each rank's part, the same on all ranks. Without it the parts are equal, and the size of the
whole must be a multiple of the ranks. `itensor_map!` returns a `Work`.
"""
function tensor_map(mapping::Symbol, x::AbstractArray, dim::Integer, comm::Comm; backward::Bool = false, parts = nothing)
    y = similar(x, mapped_size(mapping, x, dim, comm, backward, parts))
    return tensor_map!(y, mapping, x, dim, comm; backward = backward, parts = parts)
end

tensor_map!(y, mapping::Symbol, x, dim::Integer, comm::Comm; backward::Bool = false, parts = nothing) =
    _tensor_map(Blocking(), y, mapping, x, dim, comm, backward, parts)

"The asynchronous form of `tensor_map!`: returns a `Work`."
itensor_map!(y, mapping::Symbol, x, dim::Integer, comm::Comm; backward::Bool = false, parts = nothing) =
    _tensor_map(Started(), y, mapping, x, dim, comm, backward, parts)

function _tensor_map(mode, y, mapping, x, dim, comm, backward, parts)
    expect_same_type(x, y)
    expected = mapped_size(mapping, x, dim, comm, backward, parts)
    size(y) == expected || invalid("tensor_map!: the result has size $(size(y)); expected $expected")
    adds(mapping, backward) && expect_number(eltype(x))
    whole = length(x) >= length(y) ? size(x) : size(y)
    source, target = x === y ? pair(IN_PLACE, y, length(y)) : (input(x), output(y))
    dtype, width = carrier(eltype(x))
    sizes = Csize_t[size for size in (parts === nothing ? () : parts)]
    options = Ref(map_options(mapping, whole, dim, width, sizes))
    raw = backward ? Raw.dsc_tensor_map_backward : Raw.dsc_tensor_map_forward
    return GC.@preserve options sizes execute(mode, raw, comm, source, target, pointer_to(options), address(source),
        address(target), dtype)
end

"Whether a step adds up the elements of the ranks."
adds(mapping, backward) = mapping in (backward ? (:copy, :gather_reduce) : (:reduce, :reduce_scatter))

"Throws for types that the library does not know. It would move them as bytes, and add up each byte alone."
expect_number(type) = is_number(type) || throw(error_of(Raw.DSC_ERR_UNSUPPORTED,
    "tensor_map!: the library cannot add up elements of type $type; expected a number type that it knows"))

map_options(mapping, whole, dim, width, sizes) = changed(
    defaults(Raw.dsc_tensor_map_options_t, Raw.dsc_tensor_map_options_init);
    mapping = enumerator("DSC_TENSOR_MAPPING_", "mapping", mapping), dim = whole[dim],
    parts = isempty(sizes) ? Ptr{Csize_t}(C_NULL) : pointer(sizes), inner = width * prod(whole[1:dim - 1]),
    outer = prod(whole[dim + 1:end]))

"The size of the result of a step."
function mapped_size(mapping, x, dim, comm, backward, parts)
    mapping in MAPPINGS || invalid("mapping is :$mapping; expected one of :$(join(MAPPINGS, ", :"))")
    1 <= dim <= ndims(x) || invalid("dim is $dim; expected 1 to $(ndims(x)), the dimensions of the array")
    parts === nothing || expect_parts(parts, comm)
    mapping in (:copy, :reduce) && return size(x)
    grows = (mapping in (:gather, :gather_reduce)) != backward
    changed = parts === nothing ? equal_size(size(x, dim), dim, grows, comm.size) :
        listed_size(size(x, dim), dim, grows, parts, comm)
    return ntuple(i -> i == dim ? changed : size(x, i), ndims(x))
end

function equal_size(found, dim, grows, ranks)
    grows || found % ranks == 0 || invalid("dimension $dim has size $found; expected a multiple of the $ranks ranks")
    return grows ? found * ranks : found ÷ ranks
end

expect_parts(parts, comm) = length(parts) == comm.size && all(>=(0), parts) ||
    invalid("parts is $parts; expected $(comm.size) sizes, one for each rank")

function listed_size(found, dim, grows, parts, comm)
    whole, part = sum(parts), parts[comm.rank + 1]
    expected = grows ? part : whole
    found == expected || invalid("dimension $dim has size $found; expected $expected, as in parts")
    return grows ? whole : part
end
