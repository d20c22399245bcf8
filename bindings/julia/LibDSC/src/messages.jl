# Messages between two ranks. A send completes when the receiver has made the matching call.

"""
    send(x, comm; dest)

Sends an array, or a `Ref`, to one rank. The n-th send to a rank matches that rank's n-th receive from this one.
"""
send(x, comm::Comm; dest::Integer) = _send(Blocking(), x, comm, dest)

"The asynchronous form of `send`: returns a `Work`."
isend(x, comm::Comm; dest::Integer) = _send(Started(), x, comm, dest)

function _send(mode, x, comm, dest)
    expect_rank("dest", dest, comm)
    source = input(x)
    dtype, width = carrier(eltype(x))
    return execute(mode, Raw.dsc_send, comm, source, nothing, address(source), width * count_of(x), dtype, Int32(dest))
end

"""
    recv!(x, comm; source)

Receives an array, or a `Ref`, from one rank. Count and type must be those of the send.
"""
recv!(x, comm::Comm; source::Integer) = _recv(Blocking(), x, comm, source)

"The asynchronous form of `recv!`: returns a `Work`."
irecv!(x, comm::Comm; source::Integer) = _recv(Started(), x, comm, source)

function _recv(mode, x, comm, source)
    expect_rank("source", source, comm)
    target = output(x)
    dtype, width = carrier(eltype(x))
    return execute(mode, Raw.dsc_recv, comm, nothing, target, address(target), width * count_of(x), dtype, Int32(source))
end

"""
    sendrecv!(send, recv, comm; dest, source)

Sends to one rank and receives from another at the same time, so that rings do not wait for each other.
"""
function sendrecv!(send, recv, comm::Comm; dest::Integer, source::Integer)
    expect_rank("source", source, comm)
    expect_rank("dest", dest, comm)
    if dest == comm.rank && source == comm.rank
        expect_same_type(send, recv)
        expect_count("send", send, count_of(recv))
        copyto!(recv, send)
        return recv
    end
    sent = isend(send, comm; dest = dest)
    received = irecv!(recv, comm; source = source)
    wait(sent)
    wait(received)
    return recv
end
