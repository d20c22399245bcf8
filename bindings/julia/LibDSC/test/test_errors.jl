# Errors: of arguments, before anything happens; and of ranks that disagree.

function test(world)
    n = world.size
    @test_throws LibDSC.InvalidArgError allreduce!([1.0], [1.0, 2.0], +, world)
    @test_throws LibDSC.InvalidArgError allreduce!([1.0], [1.0f0], +, world)
    @test_throws LibDSC.InvalidArgError bcast!([1], world; root = n)
    @test_throws LibDSC.InvalidArgError bcast!(["text"], world)
    @test_throws LibDSC.InvalidArgError allreduce!(Any[1], +, world)
    @test_throws LibDSC.InvalidArgError allreduce!((1.0,), +, world)
    @test_throws LibDSC.UnsupportedError allreduce!([1], LibDSC.AVG, world)
    err = try allgather!([1, 2], zeros(Int, 2n + 1), world) catch error; error end
    @test err isa LibDSC.InvalidArgError && (n == 1 || occursin("multiple of the $n ranks", err.message))
    # One rank alone calls these, so they must fail before it waits for the others.
    world.rank == 0 && test_wrong_operations(world)
    x = zeros(4)
    err = try allreduce!(view(x, 1:3), view(x, 2:4), +, world) catch error; error end
    @test err isa LibDSC.InvalidArgError && occursin("overlap", err.message)
    @test sprint(showerror, err) == "InvalidArgError: $(err.message)"
    # None of these calls had an effect on the other ranks.
    @test LibDSC.allreduce(1, +, world) == n
    n > 1 && test_disagreement(world)
end

function test_wrong_operations(world)
    for op in ("x", :sum, nothing, sin, (a::String, b) -> a)
        err = try allreduce!([1.0], op, world) catch error; error end
        @test err isa LibDSC.InvalidArgError && occursin("op is $(repr(op)); expected +, *", err.message)
        @test_throws LibDSC.InvalidArgError reduce!([1.0], [1.0], op, world)
        @test_throws LibDSC.InvalidArgError iallreduce!([1.0], op, world)
    end
    @test_throws LibDSC.InvalidArgError reduce!(Any[1], (a, b) -> a, world)
end

function test_disagreement(world)
    group = LibDSC.split(world, 0; name = "disagreeing")
    count = world.rank == 0 ? 3 : 4
    err = try allreduce!(zeros(count), +, group) catch error; error end
    @test err isa LibDSC.MismatchError && err.group == "disagreeing" && err.op == "all_reduce" && err.sequence == 1
    @test_throws LibDSC.RevokedError LibDSC.barrier(group)
    # The same for an asynchronous operation.
    other = LibDSC.split(world, 0; name = "other")
    work = iallreduce!(zeros(count), +, other)
    err = try wait(work) catch error; error end
    @test err isa LibDSC.MismatchError && err.group == "other"
    @test LibDSC.test(work) && string(work) == "Work(other, failed)"
end
