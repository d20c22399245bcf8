# Trees of arrays, as Lux and Flux keep parameters and gradients: named tuples, tuples and vectors of them. Arrays of
# numbers that the library knows are leaves, in the order of the fields; everything else, such as an activation
# function, is not a parameter.

"Whether an array is a parameter or gradient."
is_leaf(::AbstractArray{T}) where {T <: Number} = is_number(T)
is_leaf(::Any) = false

is_number(::Type{T}) where {T} = dtype(T) !== nothing
is_number(::Type{Complex{T}}) where {T} = dtype(T) !== nothing

"""
Calls `visit(leaf, index, others...)` for every leaf of a tree, with what the other trees have at the same place.
`index` is the number of the first leaf; returns the number after the last one. The code is specialized for the types of
the trees, so that a walk costs no lookups.
"""
@generated function each_leaf(visit::F, index::Int, tree::Union{Tuple, NamedTuple}, others...) where {F}
    steps = map(1:fieldcount(tree)) do i
        parts = [:(child(others[$k], $i)) for k in 1:length(others)]
        return :(index = each_leaf(visit, index, tree[$i], $(parts...)))
    end
    return Expr(:block, steps..., :(return index))
end

function each_leaf(visit::F, index::Int, tree, others...) where {F}
    is_leaf(tree) && (visit(tree, index, others...); return index + 1)
    tree isa AbstractArray || return index
    for i in eachindex(tree)
        isassigned(tree, i) && (index = each_leaf(visit, index, tree[i], map(other -> child(other, i), others)...))
    end
    return index
end

@inline child(tree::Union{Tuple, NamedTuple, AbstractArray}, i) = i <= length(tree) ? tree[i] : nothing
@inline child(::Any, i) = nothing

"Returns the names of the leaves, such as \"layers.1.weight\"."
function leaf_names(tree)
    names = String[]
    collect_names!(names, "", tree)
    return names
end

function collect_names!(names, path, tree)
    is_leaf(tree) && return push!(names, isempty(path) ? "parameters" : path)
    tree isa Union{Tuple, NamedTuple, AbstractArray} || return names
    for key in keys(tree)
        collect_names!(names, isempty(path) ? string(key) : "$path.$key", tree[key])
    end
    return names
end

"Returns a tree of the same form with every leaf replaced by `make(leaf, index)`."
function map_leaves(make, tree)
    index = Ref(0)
    return replace_leaves(leaf -> make(leaf, index[] += 1), tree)
end

replace_leaves(make, tree::Union{Tuple, NamedTuple}) = map(child -> replace_leaves(make, child), tree)
replace_leaves(make, tree) =
    is_leaf(tree) ? make(tree) : tree isa AbstractArray ? map(child -> replace_leaves(make, child), tree) : tree
