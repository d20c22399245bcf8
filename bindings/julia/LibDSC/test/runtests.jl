# The tests of LibDSC. Every rank runs this file, for any number of ranks:
#
#     dscrun -n 4 -- julia runtests.jl [FILE...]

using LibDSC, Test

const FILES = isempty(ARGS) ? ["raw", "reductions", "views", "collectives", "messages", "works", "functions", "objects", "groups", "errors"] : ARGS

"""
Makes half of the ranks believe that they are on another host, and returns the options with which they meet: in a file,
because a fixed port may be in use.
"""
function as_two_hosts()
    rank, ranks = parse(Int, ENV["RANK"]), parse(Int, ENV["WORLD_SIZE"])
    each = ranks ÷ 2
    ENV["DSC_HOST_ID"] = "host-$(rank ÷ each)"
    ENV["LOCAL_RANK"], ENV["LOCAL_WORLD_SIZE"] = rank % each, each
    ENV["DSC_TOKEN"] = "ab"^32
    return (init_method = "file://" * joinpath(tempdir(), "libdsc-julia-" * ENV["DSC_JOB_ID"]),)
end

const OPTIONS = get(ENV, "DSC_TEST_HOSTS", "1") == "2" ? as_two_hosts() : NamedTuple()

LibDSC.init(; timeout = 200, OPTIONS...) do world
    @testset "rank $(world.rank)" begin
        @testset "$file" for file in FILES
            include("test_$file.jl")
            GC.gc() # also runs finalizers between the files
            Base.invokelatest(test, world)
        end
    end
end
