# Arrays of CUDA.jl in operations. They are queued on the stream of the calling task, and take part in stream order.

module LibDSCCUDAExt

import CUDA
import LibDSC

const OnDevice = LibDSC.Dense{<:CUDA.CuArray}

LibDSC.address(buffer::OnDevice) = Ptr{Cvoid}(UInt(pointer(buffer.array)))
LibDSC.stream_of(::OnDevice) = Ptr{Cvoid}(UInt(CUDA.stream().handle))
LibDSC.is_on_host(::CUDA.CuArray) = false

end
