"""
A call into libdsc failed. There is one concrete type for each error code of the library.

- `message`: what was expected and what was found
- `code`: the code, such as `LibDSC.Raw.DSC_ERR_TIMEOUT`
- `rank`, `ranks`: the first rank at fault, and all of them, as numbered in `group`; `nothing` and empty if unknown
- `group`: the name of the communicator that failed
- `op`: the operation, such as "all_reduce"
- `sequence`: the number of the operation in that group, from 1, or `nothing`
- `index`: for `NonfiniteError`, the position of the first element that is not finite, from 1; otherwise `nothing`
"""
abstract type DscError <: Exception end

# The concrete types by code: their names, and what they mean.
const ERROR_TYPES = Dict{Int32, Type}()

for (name, code, meaning) in (
    (:InvalidArgError, :DSC_ERR_INVALID_ARG, "An argument is wrong. The call had no effect."),
    (:BadHandleError, :DSC_ERR_BAD_HANDLE, "The object was closed, or belongs to a world that has ended."),
    (:StateError, :DSC_ERR_STATE, "The call is not allowed in the current state of the object."),
    (:ForkedError, :DSC_ERR_FORKED, "The call was made in a child process of fork()."),
    (:BusyError, :DSC_ERR_BUSY, "Another thread is in a call on this communicator."),
    (:ReentrantError, :DSC_ERR_REENTRANT, "The call was made in a callback in which it is not allowed."),
    (:NomemError, :DSC_ERR_NOMEM, "Out of memory."),
    (:NospaceError, :DSC_ERR_NOSPACE, "Shared memory could not be reserved."),
    (:SystemError, :DSC_ERR_SYSTEM, "A system call failed."),
    (:TimeoutError, :DSC_ERR_TIMEOUT, "The deadline passed; the message names the missing ranks."),
    (:PeerDeadError, :DSC_ERR_PEER_DEAD, "A rank's process ended without leaving."),
    (:PeerStalledError, :DSC_ERR_PEER_STALLED, "A rank's process no longer runs."),
    (:PeerLeftError, :DSC_ERR_PEER_LEFT, "A rank left the group or exited normally, also after an exception."),
    (:MismatchError, :DSC_ERR_MISMATCH, "The ranks called different operations, or with different arguments."),
    (:RevokedError, :DSC_ERR_REVOKED, "The communicator failed before or was aborted; the message gives the cause."),
    (:AuthError, :DSC_ERR_AUTH, "Authentication failed."),
    (:ProtocolError, :DSC_ERR_PROTOCOL, "The other side does not speak this protocol."),
    (:VersionError, :DSC_ERR_VERSION, "Two versions do not work together."),
    (:ConfigError, :DSC_ERR_CONFIG, "Settings are impossible or differ between ranks."),
    (:AddrInUseError, :DSC_ERR_ADDR_IN_USE, "Another job uses the address or name where the ranks meet."),
    (:NoBackendError, :DSC_ERR_NO_BACKEND, "A library, driver or symbol is missing."),
    (:BackendError, :DSC_ERR_BACKEND, "A backend failed; the message has its error."),
    (:BackendStuckError, :DSC_ERR_BACKEND_STUCK, "A call of a backend does not return."),
    (:UnsupportedError, :DSC_ERR_UNSUPPORTED, "The call is valid, but this version does not support it."),
    (:OverflowError, :DSC_ERR_OVERFLOW, "A size is too large."),
    (:CallbackError, :DSC_ERR_CALLBACK, "A function of the program failed during an operation."),
    (:NonfiniteError, :DSC_ERR_NONFINITE, "A NaN or an infinity was found."),
    (:InternalError, :DSC_ERR_INTERNAL, "A bug in the library."),
    (:UnknownError, 0, "An error code of a newer library, which this package does not know."),
)
    @eval begin
        struct $name <: DscError
            message::String
            code::Int32
            rank::Union{Int, Nothing}
            ranks::Vector{Int}
            group::String
            op::String
            sequence::Union{Int, Nothing}
            index::Union{Int, Nothing}
        end
        ERROR_TYPES[$(code isa Symbol ? :(Raw.$code) : code)] = $name
        @doc $meaning $name
    end
end

Base.showerror(io::IO, error::DscError) = print(io, nameof(typeof(error)), ": ", error.message)

"Makes the exception for an error code that is found by this package and not by the library."
function error_of(code, message; rank = nothing, ranks = Int[], group = "", op = "")
    return get(ERROR_TYPES, code, UnknownError)(message, code, rank, ranks, group, op, nothing, nothing)
end

"Makes the exception for an error record of the library."
error_of(info::Ref{Raw.dsc_error_info_t}) = error_of(info, in_julia(field(info, :code), text(info, :text)))

function error_of(info::Ref{Raw.dsc_error_info_t}, message)
    code, rank, sequence = field(info, :code), field(info, :rank), field(info, :sequence)
    ranks = [Int(field(info, :ranks, i)) for i in 1:min(field(info, :n_ranks), 64)]
    return get(ERROR_TYPES, code, UnknownError)(
        message, code, rank < 0 ? nothing : Int(rank), ranks, text(info, :group), text(info, :operation),
        sequence == 0 ? nothing : Int(sequence),
        code == Raw.DSC_ERR_NONFINITE ? Int(field(info, :index)) + 1 : nothing,
    )
end

"""
Returns the exception of this task's last failed call. It must run without a switch of tasks after that call, because
the library keeps the error per thread.
"""
@noinline function last_error(code)
    message = in_julia(code, unsafe_string(Raw.dsc_last_error_message()))
    info = empty_struct(Raw.dsc_error_info_t)
    known = Raw.dsc_last_error_info(info) == Raw.DSC_OK && field(info, :code) == code
    return known ? error_of(info, message) : error_of(code, message)
end

@noinline throw_last(code) = throw(last_error(code))

@inline check(code) = code < 0 ? throw_last(code) : code

invalid(message) = throw(error_of(Raw.DSC_ERR_INVALID_ARG, message))
