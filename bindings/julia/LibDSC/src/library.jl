"""
The C interface of libdsc under its C names. `raw.jl` is generated; it calls functions by the addresses that `load`
finds, so that the library's file is chosen at run time.
"""
module Raw

import Libdl

"Stops the loading of this package if a struct differs from the one that the C compiler made."
function check_layout(type, size, offsets)
    found = Tuple(Int(fieldoffset(type, field)) for field in 1:fieldcount(type))
    sizeof(type) == size && found == offsets ||
        error("$type has size $(sizeof(type)) and offsets $found; expected size $size and offsets $offsets")
end

include("raw.jl")

const ADDRESSES = fill(C_NULL, length(SYMBOLS))

@inline function address(index)
    found = @inbounds ADDRESSES[index]
    found == C_NULL && not_loaded()
    return found
end

@noinline not_loaded() = error("libdsc.so was not loaded; the error of `using LibDSC` says why")

const SYSTEM_NAME = "libdsc.so.$DSC_SOVERSION"

"Returns where to look for the library, as pairs of the origin and the file."
function candidates()
    named = get(ENV, "DSC_LIBRARY", "")
    isempty(named) || return ["DSC_LIBRARY" => named]
    preferred = preference()
    preferred === nothing || return ["the preference \"library\"" => preferred]
    return ["the system" => SYSTEM_NAME]
end

"""
Returns the preference `library` of LibDSC, or nothing. Preferences.jl needs Julia 1.6, so it is no dependency: it is
used if the program's environment has it.
"""
function preference()
    id = Base.PkgId(Base.UUID("21216c6a-2e73-6563-6e65-726566657250"), "Preferences")
    Base.locate_package(id) === nothing && return nothing
    preferences = Base.require(id)
    uuid = Base.UUID("2cdaaddf-7e26-48cb-8aef-8a6d6b0ac35f")
    return Base.invokelatest(preferences.load_preference, uuid, "library", nothing)
end

"Loads the library and checks its version."
function load()
    (origin, file), = candidates()
    handle = Libdl.dlopen(file; throw_error = false)
    if handle === nothing
        error("libdsc.so could not be loaded from $origin: $file; set DSC_LIBRARY to the path of libdsc.so")
    end
    check_version(handle, file)
    check_unwinder()
    for (index, name) in enumerate(SYMBOLS)
        ADDRESSES[index] = Libdl.dlsym(handle, name)
    end
end

"""
Throws if C++ exceptions of the library would end the process. Debian's Julia loads a libunwind whose functions have the
names of libgcc_s and are found first.
"""
function check_unwinder()
    find(handle) = ccall(:dlsym, Ptr{Cvoid}, (Ptr{Cvoid}, Cstring), handle, "_Unwind_RaiseException")
    first, compiler = find(C_NULL), Libdl.dlopen("libgcc_s.so.1"; throw_error = false)
    (first == C_NULL || compiler === nothing || first == find(compiler)) && return
    error("this Julia loads another unwinder before libgcc_s, so that C++ exceptions would end the process; " *
        "start Julia with LD_PRELOAD=libgcc_s.so.1")
end

function check_version(handle, file)
    major, minor, patch = Ref(Int32(0)), Ref(Int32(0)), Ref(Int32(0))
    ccall(Libdl.dlsym(handle, :dsc_version), Int32, (Ptr{Int32}, Ptr{Int32}, Ptr{Int32}), major, minor, patch)
    major[] == DSC_VERSION_MAJOR && minor[] >= DSC_VERSION_MINOR && return
    wanted = "$DSC_VERSION_MAJOR.$DSC_VERSION_MINOR or a newer $DSC_VERSION_MAJOR.x"
    error("$file is version $(major[]).$(minor[]).$(patch[]); this package needs $wanted")
end

end
