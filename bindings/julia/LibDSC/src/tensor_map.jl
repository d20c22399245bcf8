# The exchanges of tensor and sequence parallelism, with the library's mappings.
#
# The library views a tensor as [outer, dim, inner] in row-major order. Julia's arrays are column-major, which is
# row-major with reversed dimensions: so for dimension d of an array, `inner` is the product of the sizes before d, and
# `outer` of those after it. Nothing is transposed.

const MAPPINGS = (:copy, :reduce, :scatter, :gather, :gather_reduce, :reduce_scatter)

"""
    tensor_map(mapping, x, dim, comm; backward = false) -> Array
    tensor_map!(y, mapping, x, dim, comm; backward = false)

Performs a step of a tensor-parallel mapping on an array that the ranks divide along dimension `dim`. Backward steps
move gradients and take the same mapping and dimension.

- `:copy`: forward the whole as it is; backward the sum over the ranks
- `:reduce`: forward the sum; backward the whole as it is
- `:scatter`: forward this rank's part; backward all parts
- `:gather`: forward all parts; backward this rank's part
- `:gather_reduce`: forward all parts; backward this rank's part of the sum
- `:reduce_scatter`: forward this rank's part of the sum; backward all parts

For parts of equal size; the size of the whole must be a multiple of the ranks. `itensor_map!` returns a `Work`.
"""
tensor_map(mapping::Symbol, x::AbstractArray, dim::Integer, comm::Comm; backward::Bool = false) =
    tensor_map!(similar(x, mapped_size(mapping, x, dim, comm, backward)), mapping, x, dim, comm; backward = backward)

tensor_map!(y, mapping::Symbol, x, dim::Integer, comm::Comm; backward::Bool = false) =
    _tensor_map(Blocking(), y, mapping, x, dim, comm, backward)

"The asynchronous form of `tensor_map!`: returns a `Work`."
itensor_map!(y, mapping::Symbol, x, dim::Integer, comm::Comm; backward::Bool = false) =
    _tensor_map(Started(), y, mapping, x, dim, comm, backward)

function _tensor_map(mode, y, mapping, x, dim, comm, backward)
    expect_same_type(x, y)
    expected = mapped_size(mapping, x, dim, comm, backward)
    size(y) == expected || invalid("tensor_map!: the result has size $(size(y)); expected $expected")
    adds(mapping, backward) && expect_number(eltype(x))
    whole = length(x) >= length(y) ? size(x) : size(y)
    source, target = x === y ? pair(IN_PLACE, y, length(y)) : (input(x), output(y))
    dtype, width = carrier(eltype(x))
    options = Ref(map_options(mapping, whole, dim, width))
    raw = backward ? Raw.dsc_tensor_map_backward : Raw.dsc_tensor_map_forward
    return GC.@preserve options execute(mode, raw, comm, source, target, pointer_to(options), address(source),
        address(target), dtype)
end

"Whether a step adds up the elements of the ranks."
adds(mapping, backward) = mapping in (backward ? (:copy, :gather_reduce) : (:reduce, :reduce_scatter))

"Throws for types that the library does not know. It would move them as bytes, and add up each byte alone."
expect_number(type) = is_number(type) || throw(error_of(Raw.DSC_ERR_UNSUPPORTED,
    "tensor_map!: the library cannot add up elements of type $type; expected a number type that it knows"))

map_options(mapping, whole, dim, width) = changed(
    defaults(Raw.dsc_tensor_map_options_t, Raw.dsc_tensor_map_options_init);
    mapping = enumerator("DSC_TENSOR_MAPPING_", "mapping", mapping), dim = whole[dim],
    inner = width * prod(whole[1:dim - 1]), outer = prod(whole[dim + 1:end]))

"The size of the result of a step."
function mapped_size(mapping, x, dim, comm, backward)
    mapping in MAPPINGS || invalid("mapping is :$mapping; expected one of :$(join(MAPPINGS, ", :"))")
    1 <= dim <= ndims(x) || invalid("dim is $dim; expected 1 to $(ndims(x)), the dimensions of the array")
    mapping in (:copy, :reduce) && return size(x)
    grows = (mapping in (:gather, :gather_reduce)) != backward
    grows || size(x, dim) % comm.size == 0 ||
        invalid("dimension $dim has size $(size(x, dim)); expected a multiple of the $(comm.size) ranks")
    changed = grows ? size(x, dim) * comm.size : size(x, dim) ÷ comm.size
    return ntuple(i -> i == dim ? changed : size(x, i), ndims(x))
end
