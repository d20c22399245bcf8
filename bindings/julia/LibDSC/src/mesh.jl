"""
    Mesh(axes...; order, world_size, rank_offset)

Ranks in a grid of named axes: `Mesh("tp" => 2, "pp" => -1; order = "tp-pp", world_size = world.size)`. One size may be
-1: it is computed from `world_size`. `order` names the axes, the one that varies fastest first; without it the last
axis varies fastest.

A mesh only computes; any thread may use it. Several axes are written "tp-dp". Only `group(mesh, ...)` needs running
ranks. The rules are in docs/mesh.md.
"""
mutable struct Mesh
    owned::Owned
    axes::Vector{String} # in the order in which they were listed
    Mesh(owned::Owned, axes) = finalizer(mesh -> drop(mesh.owned), new(owned, axes))
end

function Mesh(axes::Pair{<:AbstractString, <:Integer}...; options...)
    given, texts = options_of(Raw.dsc_mesh_options_t, Raw.dsc_mesh_options_init, "Mesh", options)
    names, sizes = [String(first(axis)) for axis in axes], Int32[last(axis) for axis in axes]
    owned = GC.@preserve texts sizes with_texts(names) do list, n
        return owned_handle(out -> Raw.dsc_mesh_create(list, sizes, n, given, out), Raw.dsc_mesh_t, Raw.dsc_mesh_destroy)
    end
    return Mesh(owned, names)
end

mesh_handle(mesh::Mesh) = Ptr{Raw.dsc_mesh_t}(mesh.owned.handle)
free(mesh::Mesh) = free(mesh.owned)

"""
    experts(mesh, ep; expert_tp = nothing) -> Mesh

Returns the mesh of the experts for a mesh of the dense layers: the same ranks, order and pipeline groups.
"""
experts(mesh::Mesh, ep::Integer; expert_tp::Union{Integer, Nothing} = nothing) =
    Mesh(owned_handle(Raw.dsc_mesh_t, Raw.dsc_mesh_destroy) do out
        return Raw.dsc_mesh_create_experts(mesh_handle(mesh), ep, something(expert_tp, 0), out)
    end, mesh.axes)

Base.size(mesh::Mesh, axis::AbstractString) =
    number_of(out -> Raw.dsc_mesh_axis_size(mesh_handle(mesh), String(axis), out))
Base.length(mesh::Mesh) = number_of(out -> Raw.dsc_mesh_size(mesh_handle(mesh), out))

"Returns the order of the axes, such as \"tp-pp\"; the first one varies fastest."
order(mesh::Mesh) = text_of((room...) -> Raw.dsc_mesh_order(mesh_handle(mesh), room...))

Base.show(io::IO, mesh::Mesh) =
    print(io, "LibDSC.Mesh(", join(["$axis $(size(mesh, axis))" for axis in mesh.axes], ", "), "; order ", order(mesh), ")")

"Returns the coordinates of a rank, by axis."
function coord(mesh::Mesh, rank::Integer)
    coords = zeros(Int32, length(mesh.axes))
    check(Raw.dsc_mesh_coord(mesh_handle(mesh), rank, coords, length(coords)))
    return Dict(axis => Int(at) for (axis, at) in zip(mesh.axes, coords))
end

"A coordinate per axis; -1 for axes that are not named."
function coords_of(mesh::Mesh, named)
    coords = fill(Int32(-1), length(mesh.axes))
    for (axis, at) in named
        index = findfirst(isequal(String(axis)), mesh.axes)
        index === nothing && size(mesh, axis) # throws the library's error
        coords[index] = at
    end
    return coords
end

"""
    rank(mesh, "tp" => 1, "pp" => 0) -> Int

Returns the rank with these coordinates, one for every axis.
"""
function rank(mesh::Mesh, coords::Pair{<:AbstractString, <:Integer}...)
    listed = coords_of(mesh, coords)
    return number_of(out -> Raw.dsc_mesh_rank(mesh_handle(mesh), listed, length(listed), out))
end

"Returns all ranks with these coordinates, in ascending order. Axes that are not named may have any coordinate."
function ranks(mesh::Mesh, coords::Pair{<:AbstractString, <:Integer}...)
    listed = coords_of(mesh, coords)
    return Int.(list_of((room...) -> Raw.dsc_mesh_filter(mesh_handle(mesh), listed, length(listed), room...), Int32))
end

"Returns the rank this many steps further along an axis, which is a ring."
neighbor(mesh::Mesh, rank::Integer, axis::AbstractString, steps::Integer = 1) =
    number_of(out -> Raw.dsc_mesh_neighbor(mesh_handle(mesh), rank, String(axis), steps, out))

"Returns the rank at a position of an axis, with the other coordinates of `rank`. -1 is the last position."
peer(mesh::Mesh, rank::Integer, axis::AbstractString, position::Integer) =
    number_of(out -> Raw.dsc_mesh_peer(mesh_handle(mesh), rank, String(axis), position, out))

"Returns the name of a rank, such as \"pipe_00-data_01\"."
rank_name(mesh::Mesh, rank::Integer) =
    text_of((room...) -> Raw.dsc_mesh_rank_name(mesh_handle(mesh), rank, NO_TEXT, NO_TEXT, NO_TEXT, room...))

"Returns all groups along some axes, as vectors of ranks."
function groups(mesh::Mesh, axes::AbstractString)
    listed, n, each = Vector{Int32}(undef, length(mesh)), Ref{Csize_t}(0), Ref{Csize_t}(0)
    check(Raw.dsc_mesh_groups(mesh_handle(mesh), String(axes), listed, length(listed), n, each))
    return [Int.(listed[(i - 1) * each[] + 1:i * each[]]) for i in 1:n[]]
end

"Returns the ranks of the group along some axes that contains a rank."
function ranks(mesh::Mesh, rank::Integer, axes::AbstractString)
    name = String(axes)
    return Int.(list_of(Int32) do room...
        return Raw.dsc_mesh_group(mesh_handle(mesh), rank, name, room..., C_NULL, C_NULL)
    end)
end

"""
    group(mesh, comm, axes; name, timeout) -> Comm

Makes the communicators of the groups along some axes, and returns that of this rank. `comm` is as large as the mesh,
and all of its ranks must call it.
"""
function group(mesh::Mesh, comm::Comm, axes::AbstractString; options...)
    text = String(axes)
    GC.@preserve text begin
        named = address(text)
        return make_group(options) do settings, out
            return Raw.dsc_mesh_comm(mesh_handle(mesh), comm.handle, named, settings, out)
        end
    end
end
