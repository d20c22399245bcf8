"""
    shard_indices(count, shards, shard; shuffle = true, seed = 0, drop_last = true) -> Vector{Int}

Returns the samples, from 1 to `count`, of one of several shards. `shard` is numbered from 0, like ranks. Equal positions
in all shards are consecutive samples of the shuffled order, so a batch does not depend on the number of shards. All
languages and machines get the same order.
"""
function shard_indices(count::Integer, shards::Integer, shard::Integer; shuffle::Bool = true, seed::Integer = 0,
        drop_last::Bool = true)
    found = list_of(Csize_t) do room...
        return Raw.dsc_sampler_indices(count, shards, shard, shuffle, seed, drop_last, room...)
    end
    return Int.(found) .+ 1
end
