# The tests of LibDSC. Every rank runs this file, for any number of ranks:
#
#     dscrun -n 4 -- julia runtests.jl [FILE...]

using LibDSC, Test

const FILES = isempty(ARGS) ? ["raw", "reductions", "views", "collectives", "messages", "works", "functions", "objects", "groups", "errors"] : ARGS

include("hosts.jl")

LibDSC.init(; timeout = 200, OPTIONS...) do world
    @testset "rank $(world.rank)" begin
        @testset "$file" for file in FILES
            include("test_$file.jl")
            GC.gc() # also runs finalizers between the files
            Base.invokelatest(test, world)
        end
    end
end
