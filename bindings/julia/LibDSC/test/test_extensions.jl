# Package extensions and the recipe for binaries: they need packages or versions that are not here, so they are parsed
# only. Every method that they add must have a function in LibDSC, and Project.toml must list every file.

const PACKAGE = dirname(@__DIR__)

function parsed(file)
    text, position, expressions = read(file, String), 1, Any[]
    while position <= ncodeunits(text)
        expression, position = Meta.parse(text, position; raise = true)
        expression isa Expr && expression.head in (:error, :incomplete) && error("$file: $expression")
        expression === nothing || push!(expressions, expression)
    end
    return expressions
end

"All names NAME in LibDSC.NAME."
function used_names!(found, expression)
    expression isa Expr || return found
    if expression.head === :. && length(expression.args) == 2 && expression.args[1] === :LibDSC
        push!(found, expression.args[2].value)
    end
    foreach(part -> used_names!(found, part), expression.args)
    return found
end

function test(world)
    files = readdir(joinpath(PACKAGE, "ext"))
    project = read(joinpath(PACKAGE, "Project.toml"), String)
    @test length(files) == 3
    for file in files
        expressions = parsed(joinpath(PACKAGE, "ext", file))
        modules = filter(e -> e isa Expr && e.head === :module, expressions)
        @test length(modules) == 1 && "$(modules[1].args[2]).jl" == file
        @test occursin("\n$(modules[1].args[2]) = ", project)
        used = used_names!(Set{Symbol}(), modules[1])
        @test !isempty(used) && all(name -> isdefined(LibDSC, name), used)
    end
    @test !isempty(parsed(joinpath(PACKAGE, "..", "yggdrasil", "build_tarballs.jl")))
    test_other_in_place(world)
end

# Methods as those of the extension for MPI.jl, for its word MPI.IN_PLACE.
struct OtherInPlace end
LibDSC.in_place(::OtherInPlace) = true
LibDSC.pair(::OtherInPlace, recv, expected) = LibDSC.pair(LibDSC.IN_PLACE, recv, expected)

function test_other_in_place(world)
    own = [rank == world.rank ? rank : -1 for rank in 0:world.size - 1]
    expected = collect(0:world.size - 1)
    @test allgather!(OtherInPlace(), copy(own), world) == expected
    @test allgatherv!(OtherInPlace(), copy(own), ones(Int, world.size), world) == expected
    @test allreduce!(OtherInPlace(), [1], +, world) == [world.size]
end
