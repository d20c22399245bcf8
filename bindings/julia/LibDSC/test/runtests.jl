# The tests of LibDSC. Every rank runs this file, for any number of ranks:
#
#     dscrun -n 4 -- julia runtests.jl [FILE...]

using LibDSC, Test

const FILES = isempty(ARGS) ? ["raw", "reductions", "views", "collectives", "messages", "works", "functions", "objects", "groups", "errors",
    "stores", "meshes", "reducer", "pipelines", "tensor_maps", "extensions"] : ARGS

# With DSC_TEST_HOSTS=2 the ranks pretend to be on two hosts, one half on each.
if haskey(ENV, "DSC_TEST_HOSTS")
    number, ranks = parse(Int, ENV["RANK"]), parse(Int, ENV["WORLD_SIZE"])
    hosts = parse(Int, ENV["DSC_TEST_HOSTS"])
    ENV["DSC_HOST_ID"] = "host-$(number * hosts ÷ ranks)"
    ENV["DSC_TOKEN"] = "ab"^32
    ENV["MASTER_ADDR"] = "127.0.0.1"
end

LibDSC.init(timeout = 200) do world
    @testset "rank $(world.rank)" begin
        @testset "$file" for file in FILES
            include("test_$file.jl")
            GC.gc() # also runs finalizers between the files
            Base.invokelatest(test, world)
        end
    end
end
