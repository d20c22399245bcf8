# The raw layer, and what is known of a communicator.

function test(world)
    @test LibDSC.version() >= v"0.1"
    @test unsafe_string(LibDSC.Raw.dsc_result_name(LibDSC.Raw.DSC_ERR_TIMEOUT)) == "DSC_ERR_TIMEOUT"
    @test world.name == "world" && size(world) == world.size && LibDSC.rank(world) == world.rank
    @test LibDSC.is_initialized() && LibDSC.world().handle == world.handle
    @test occursin("rank $(world.rank) of $(world.size)", string(world))
    # Every error code of the library has its type, and every type its code.
    codes = [getfield(LibDSC.Raw, name) for name in names(LibDSC.Raw; all = true) if startswith(string(name), "DSC_ERR_")]
    @test sort(codes) == sort(filter(!iszero, collect(keys(LibDSC.ERROR_TYPES))))
    @test LibDSC.read_log(:warn) isa Vector && LibDSC.read_log(:off) isa Vector
    @test_throws LibDSC.InvalidArgError LibDSC.read_log(:loud)
    @test_throws LibDSC.InvalidArgError LibDSC.init(ranks = 3)
    err = try LibDSC.init(world_size = world.size + 1, rank = world.rank) catch error; error end
    @test err isa LibDSC.StateError && occursin("the world exists already", err.message)
end
