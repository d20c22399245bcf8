-- Calls functions of every kind through the generated binding: dscrun -n 2 luajit tour.lua API_JSON [LIBRARY]

local here = arg[0]:match("^(.*)/") or "."
package.path = here .. "/?.lua;" .. package.path
local ffi = require("ffi")
local dsc = require("dsc").load(arg[1], arg[2])

local calls = 0
for name, call in pairs(dsc) do
  if type(call) == "function" then
    dsc[name] = function(...)
      calls = calls + 1
      return call(...)
    end
  end
end

local function same(found, expected, what)
  if found ~= expected then error(string.format("%s is %s, expected %s", what, tostring(found), tostring(expected)), 2) end
end

local function same_list(found, expected, what)
  same(table.concat(found, " "), table.concat(expected, " "), what)
end

local function fails(code, text, call, ...)
  local succeeded, failure = pcall(call, ...)
  assert(not succeeded, "expected a failure with " .. text)
  if code then same(failure.code, code, "the code") end
  local message = type(failure) == "table" and failure.message or failure
  assert(message:find(text, 1, true), message)
end

-- Functions without a world: numbers, texts, lists, structs.
local major, minor, patch = dsc.version()
assert(major >= 0 and minor >= 0 and patch >= 0)
same(dsc.result_name(dsc.ERR_TIMEOUT), "DSC_ERR_TIMEOUT", "a name")
same(dsc.dtype_bytes(dsc.DTYPE_F64), 8, "the size of f64")
same(dsc.feature("host"), 1, "the host engine")
assert(dsc.engines_json():find("{", 1, true))
fails("DSC_ERR_INVALID_ARG", "expected", dsc.dtype_bytes, 99)

local start, length = dsc.tensor_map_part(10, 3, 1)
same_list({start, length}, {4, 3}, "the part")
local indices, starts, limits, n_buckets = dsc.bucket_plan({10, 20, 30}, {8, 8, 8}, {limits = {100}})
same_list({#indices, #starts, #limits, n_buckets}, {3, 4, 3, 2}, "the plan")
same_list(dsc.pipe_partition({1, 1, 1, 1}, 2), {0, 2, 4}, "the boundaries")
local begins, lengths = dsc.sequence_ranges(dsc.SEQUENCE_ORDER_ZIGZAG, 8, 2, 0)
same_list({begins[1], begins[2], lengths[1], lengths[2]}, {0, 6, 2, 2}, "the ranges")
same(#dsc.sampler_indices(10, 2, 0, 0, 0, 0), 5, "the samples")

local mesh = dsc.mesh_create({"dp", "tp"}, {2, 2})
same(dsc.mesh_size(mesh), 4, "the mesh")
same(dsc.mesh_axis_size(mesh, "tp"), 2, "an axis")
same_list(dsc.mesh_coord(mesh, 2, 2), {1, 0}, "coordinates")
same(dsc.mesh_rank(mesh, {1, 1}), 3, "a rank")
same_list((dsc.mesh_group(mesh, 3, "tp")), {2, 3}, "a group")
local members, n_groups, group_size = dsc.mesh_groups(mesh, "tp")
same_list(members, {0, 1, 2, 3}, "the groups")
same_list({n_groups, group_size}, {2, 2}, "their number and size")
dsc.mesh_destroy(mesh)
local grid = dsc.mesh_create({"pipe", "data", "model"}, {1, 2, 2})
local names, starts, ranks, n_names, n_ranks = dsc.mesh_plan(grid, {style = "deepspeed"})
same(#starts, n_names + 1, "the groups of a plan")
same(starts[#starts], n_ranks, "the ranks of a plan")
same(names[1], "ds_model", "the first group's name")
dsc.mesh_destroy(grid)

local store = dsc.store_open("memory://")
dsc.store_set(store, "key", "value", 5)
same(dsc.store_get(store, "key", 1000), "value", "a value")
same(dsc.store_compare_set(store, "key", "value", 5, "other", 5), "other", "the exchanged value") -- must run only once
same(dsc.store_add(store, "count", 4), 4, "a counter")
dsc.store_destroy(store)

-- Ranks: communicators, operations, works, callbacks.
local world = dsc.init_distributed({timeout_ms = 60000})
local rank, size = dsc.comm_rank(world), dsc.comm_size(world)
same(dsc.comm_name(world), "world", "the name")

local function floats(n, value)
  local array = ffi.new("float[?]", n)
  for i = 0, n - 1 do array[i] = value + i end
  return array
end

local x = floats(4, rank)
dsc.all_reduce(world, x, x, 4, dsc.DTYPE_F32, dsc.OP_SUM)
same(x[3], size * (size - 1) / 2 + 3 * size, "the sum")
fails(nil, "has 16 bytes, expected 20 (count elements)", dsc.all_reduce, world, x, x, 5, dsc.DTYPE_F32, dsc.OP_SUM)

local all = ffi.new("float[?]", size * 4)
dsc.all_gather(world, floats(4, 10 * rank), all, 4, dsc.DTYPE_F32)
same(all[4 * (size - 1)], 10 * (size - 1), "the last rank's part")
local counts = {}
for r = 1, size do counts[r] = r end
local uneven = ffi.new("float[?]", size * (size + 1) / 2)
dsc.all_gather_v(world, floats(rank + 1, 100 * rank), uneven, counts, dsc.DTYPE_F32)
same(uneven[size * (size + 1) / 2 - 1], 100 * (size - 1) + size - 1, "the last element")

local work = dsc.all_reduce(world, x, x, 4, dsc.DTYPE_F32, dsc.OP_MAX, nil, true)
dsc.work_wait(work, 60000)
same(dsc.work_test(work), 1, "the work")
dsc.work_destroy(work)
dsc.barrier(world)

local group = dsc.comm_split(world, 0, -rank, {name = "turned"})
same(dsc.comm_rank(group), size - 1 - rank, "the rank in the group")
same(dsc.comm_global_rank(group, 0), size - 1, "the world's rank")
assert(#dsc.comm_stats(world) > 0)
fails("DSC_ERR_INVALID_ARG", "root is 99", dsc.broadcast, world, x, x, 4, dsc.DTYPE_F32, 99)
fails(nil, "may run on any thread", dsc.op_create_user, function() return 0 end, 7, 1)

-- A pipeline of one stage per rank: each stage adds 1, and functions of Lua compute.
local passes = 0
local schedule = dsc.pipe_schedule_create({name = "gpipe", stages = size, stage = rank, micro_batches = 3, forward_only = 1})
local tensor = {{count = 1, dtype = dsc.DTYPE_F32, device = -1}}
local callbacks = {
  forward = function(_, call)
    passes = passes + 1
    local input = rank > 0 and ffi.cast("float*", call.inputs[0])[0] or 0
    if rank < size - 1 then ffi.cast("float*", call.outputs[0])[0] = input + 1 else call.loss[0] = input + 1 end
    return 0
  end,
}
local shapes = {inputs = rank > 0 and tensor or nil, outputs = rank < size - 1 and tensor or nil}
local loss = dsc.pipe_run(schedule, group and world, callbacks, shapes)
same(passes, 3, "the passes")
same(loss, size, "the mean loss")
dsc.pipe_schedule_destroy(schedule)

dsc.comm_destroy(group)
dsc.finalize()
assert(calls >= 30)
if rank == 0 then print("every kind of function was called") end
