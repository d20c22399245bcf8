# Stores: one in memory, and one over TCP that all ranks share.

function test(world)
    LibDSC.Store("memory://"; timeout = 20) do store
        test_values(store)
        @test_throws LibDSC.TimeoutError fetch(store, "missing"; timeout = 0)
        err = try wait(store, ["color", "missing"]; timeout = 0) catch error; error end
        @test err isa LibDSC.TimeoutError && occursin("missing", err.message)
    end
    err = try LibDSC.Store("memory://"; time_out = 1) catch error; error end
    @test err isa LibDSC.InvalidArgError && occursin("Store has no option `time_out`; expected one of", err.message)
    @test_throws LibDSC.InvalidArgError LibDSC.Store("nonsense://")
    for i in 1:20
        make_and_drop_store()
        i % 5 == 0 && GC.gc()
    end
    test_shared(world)
end

@noinline make_and_drop_store() = (LibDSC.Store("memory://")["key"] = "value"; nothing)

function test_values(store)
    store["color"] = "blue"
    store["bytes"] = UInt8[0, 255]
    store["empty"] = ""
    @test String(store["color"]) == "blue" && store["bytes"] == [0x00, 0xff] && isempty(store["empty"])
    @test haskey(store, "color") && !haskey(store, "missing") && length(store) == 3
    append!(store, "color", "-green")
    @test String(store["color"]) == "blue-green"
    delete!(store, "bytes")
    @test !haskey(store, "bytes")
    @test LibDSC.add!(store, "counter", 3) == 3 && LibDSC.add!(store, "counter", -1) == 2
    @test String(LibDSC.compare_set!(store, "color", "blue-green", "red")) == "red"
    @test String(LibDSC.compare_set!(store, "color", "blue", "black")) == "red"
    part = LibDSC.prefix(store, "part")
    part["key"] = "inside"
    @test String(store["part/key"]) == "inside"
    LibDSC.free(part)
    @test_throws LibDSC.BadHandleError part["key"]
end

function test_shared(world)
    server = world.rank == 0 ? LibDSC.Store("tcp://127.0.0.1:0"; serve = 1, world_size = world.size) : nothing
    port = LibDSC.bcast(server === nothing ? 0 : LibDSC.port(server), world)
    store = server === nothing ? LibDSC.Store("tcp://127.0.0.1:$port"; timeout = 60) : server
    store["rank/$(world.rank)"] = "here"
    wait(store, ["rank/$r" for r in 0:world.size - 1]; timeout = 60)
    LibDSC.add!(store, "sum", world.rank)
    LibDSC.barrier(world)
    @test String(store["sum"]) == string(sum(0:world.size - 1))
    LibDSC.barrier(world)
    LibDSC.free(store)
end
