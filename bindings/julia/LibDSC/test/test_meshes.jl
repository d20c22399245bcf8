# Meshes: arithmetic on ranks, and communicators of their groups.

function test(world)
    mesh = LibDSC.Mesh("tp" => 2, "dp" => 2, "pp" => -1; order = "tp-dp-pp", world_size = 8)
    @test length(mesh) == 8 && size(mesh, "pp") == 2 && LibDSC.order(mesh) == "tp-dp-pp"
    @test string(mesh) == "LibDSC.Mesh(tp 2, dp 2, pp 2; order tp-dp-pp)"
    @test LibDSC.coord(mesh, 5) == Dict("tp" => 1, "dp" => 0, "pp" => 1)
    @test LibDSC.rank(mesh, "pp" => 1, "tp" => 1, "dp" => 0) == 5
    @test LibDSC.ranks(mesh, "tp" => 1) == [1, 3, 5, 7]
    @test LibDSC.groups(mesh, "tp-dp") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    @test LibDSC.ranks(mesh, 6, "pp") == [2, 6]
    @test LibDSC.neighbor(mesh, 6, "pp") == 2 && LibDSC.peer(mesh, 0, "pp", -1) == 4
    @test LibDSC.rank_name(mesh, 5) == "tp_01-dp_00-pp_01"
    err = try size(mesh, "tq") catch error; error end
    @test err isa LibDSC.InvalidArgError && occursin("tp", err.message)
    @test_throws LibDSC.InvalidArgError LibDSC.rank(mesh, "tp" => 1)
    @test_throws LibDSC.InvalidArgError LibDSC.Mesh("tp" => 3, "pp" => -1; world_size = 8)
    dense = LibDSC.Mesh("tp" => 1, "cp" => 1, "ep" => 1, "dp" => 4, "pp" => 1; order = "tp-cp-ep-dp-pp")
    @test size(LibDSC.experts(dense, 2), "ep") == 2
    for i in 1:20
        LibDSC.Mesh("dp" => i)
        i % 5 == 0 && GC.gc()
    end
    LibDSC.free(dense)
    @test_throws LibDSC.BadHandleError length(dense)
    test_communicators(world)
end

function test_communicators(world)
    pairs = LibDSC.Mesh("tp" => world.size % 2 == 0 ? 2 : 1, "pp" => -1; order = "tp-pp", world_size = world.size)
    pipeline = LibDSC.group(pairs, world, "pp"; name = "pipeline")
    GC.gc()
    @test pipeline.name == "pipeline" && pipeline.size == size(pairs, "pp")
    @test LibDSC.allgather(world.rank, pipeline) == LibDSC.ranks(pairs, world.rank, "pp")
end
