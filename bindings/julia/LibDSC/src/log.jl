# Records of the library's log. They are read from a queue, because the library's log thread cannot call Julia.

const LOG_LEVELS = (off = Raw.DSC_LOG_LEVEL_OFF, error = Raw.DSC_LOG_LEVEL_ERROR, warn = Raw.DSC_LOG_LEVEL_WARN,
    info = Raw.DSC_LOG_LEVEL_INFO, debug = Raw.DSC_LOG_LEVEL_DEBUG)

"""
    read_log(level = :info) -> Vector

Returns the queued records of the library, as named tuples of level and text. The first call starts recording at that
level, and `read_log(:off)` stops it.
"""
function read_log(level::Symbol = :info)
    haskey(LOG_LEVELS, level) || invalid("level is :$level; expected one of $(join(keys(LOG_LEVELS), ", "))")
    records = NamedTuple{(:level, :text), Tuple{Symbol, String}}[]
    buffer, needed, found = Vector{UInt8}(undef, 1024), Ref{Csize_t}(0), Ref{Int32}(0)
    while check(Raw.dsc_log_read(LOG_LEVELS[level], buffer, length(buffer), needed, found)) != Raw.DSC_DONE
        name = keys(LOG_LEVELS)[findfirst(isequal(found[]), Tuple(LOG_LEVELS))]
        push!(records, (level = name, text = String(buffer[1:min(needed[], length(buffer)) - 1])))
    end
    return records
end
