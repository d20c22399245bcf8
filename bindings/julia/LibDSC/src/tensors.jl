# Descriptions of arrays in lists. Julia's column-major arrays are row-major ones with reversed dimensions.

"Descriptions, and what they point to."
struct Tensors
    list::Vector{Raw.dsc_tensor_t}
    roots::Any
end

"""
Describes arrays by pairs of element type and dimensions, in the order of Julia. `pointers` may be null if the
descriptions alone are used; an empty name leaves the library's.
"""
function describe(shapes, pointers, names)
    sizes = [Int64[reverse(dimensions)...] for (_, dimensions) in shapes]
    list = [tensor(type, size, pointer, name) for ((type, _), size, pointer, name) in zip(shapes, sizes, pointers, names)]
    return Tensors(list, (sizes, names))
end

function tensor(type, sizes, pointer, name)
    number, width = carrier(type)
    shape = width == 1 ? Base.pointer(sizes) : Base.pointer(push!(sizes, width))
    text = isempty(name) ? NO_TEXT : address(name)
    return Raw.dsc_tensor_t(sizeof(Raw.dsc_tensor_t), pointer, shape, text, prod(sizes), number, length(sizes), -1, 0)
end
