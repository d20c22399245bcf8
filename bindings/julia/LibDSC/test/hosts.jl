# Options for init(): DSC_TEST_HOSTS=2 simulates two hosts.

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
