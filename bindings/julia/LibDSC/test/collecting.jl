# Runs programs while the collector is forced between their statements:
#
#     dscrun -n 4 -- julia collecting.jl PROGRAM... [OPTION...]

include("hosts.jl")

const STATEMENTS = Ref(0)

"Collects at each of the first statements, and later at some. A full collection takes a tenth of a second."
function collect_sometimes()
    STATEMENTS[] += 1
    STATEMENTS[] <= 60 ? GC.gc(STATEMENTS[] % 4 == 1) : STATEMENTS[] % 100 == 0 && GC.gc(false)
    return
end

const COLLECT = :(Main.collect_sometimes())
const INIT_OPTIONS = Expr(:parameters, :(Main.OPTIONS...))

"Puts a collection before every statement of an expression, and passes the options of the test to init()."
function with_collections(code)
    code isa Expr || return code
    code.head === :struct && return code
    # The first part of a loop and of a `let` is a list of variables, which may look like statements.
    parts = Any[i == 1 && code.head in (:for, :let) ? part : with_collections(part) for (i, part) in enumerate(code.args)]
    code.head === :call && parts[1] == :(LibDSC.init) && return Expr(:call, parts[1], INIT_OPTIONS, parts[2:end]...)
    code.head === :block || return Expr(code.head, parts...)
    return Expr(:block, Iterators.flatten(part isa LineNumberNode ? (part,) : (COLLECT, part) for part in parts)...)
end

programs = filter(endswith(".jl"), ARGS)
filter!(!endswith(".jl"), ARGS)
for program in programs
    STATEMENTS[] = 0
    include(with_collections, abspath(program))
    STATEMENTS[] > 4 || error("$program has only $(STATEMENTS[]) statements")
end
