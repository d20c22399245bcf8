-- A binding for LuaJIT that is generated from api.json when a program starts. It knows the conventions of that file,
-- which docs/bindings.md describes, but no function of the library by name except three: the last error's text, the
-- size of an element, and the numbers of ranks that lengths refer to.
--
-- A function takes its inputs and returns its outputs: dsc.comm_rank(comm) returns the rank. Left out are what the
-- binding computes: capacities, needed sizes, struct_size, and the number of entries of a list that is given as a table.
-- Options are tables of the fields that differ from the defaults. A failure is an error with the fields code and message.

local ffi = require("ffi")
local json = require("dkjson")
local declare = require("declare")
local lengths = require("lengths")

local Binding = {}
Binding.__index = Binding

local Failure = {__tostring = function(self) return self.code .. ": " .. self.message end}

local function index(list)
  local named = {}
  for _, entry in ipairs(list) do named[entry.name] = entry end
  return named
end

local function element_of(c_type)
  return (c_type:gsub("const", ""):gsub("[%* ]", ""))
end

-- Passes a Lua value where C expects a pointer to a list. Returns the pointer and the number of entries.
function Binding:list(call, part, value)
  if type(value) ~= "table" then return value end
  local element = part.role == "texts" and "const char*" or element_of(part.type)
  local is_handle = self.handles[element] ~= nil
  local array = ffi.new((is_handle and element .. "*" or element) .. "[?]", math.max(#value, 1))
  for i, entry in ipairs(value) do
    if self.structs[element] then self:fill(call, self.structs[element], array[i - 1], entry) else array[i - 1] = entry end
  end
  call.keep[#call.keep + 1] = {array, value}
  return array, #value
end

-- Writes a table of fields into a struct, which gets its defaults first.
function Binding:fill(call, struct, place, given)
  if struct.init then self:check(self.library[struct.init](place, struct.size))
  elseif index(struct.fields).struct_size then place.struct_size = struct.size end
  for _, field in ipairs(struct.fields) do
    local value = given[field.name]
    if value ~= nil then
      local pointer, n = self:input(call, field, value)
      place[field.name] = pointer
      local count = index(struct.fields)["n_" .. field.name]
      if n and count then place[count.name] = n end
    end
  end
end

-- Calls a Lua function on the calling thread only: LuaJIT has no other thread on which it could run.
function Binding:callback(call, part, value)
  local kind = self.callbacks[part.type]
  if not kind.threads:find("^the calling thread") then
    error(part.type .. " may run on " .. kind.threads .. "; expected a function of C, because LuaJIT runs callbacks on the calling thread only")
  end
  local pointer = ffi.cast(part.type, value)
  -- A callback that the library may call later is never freed.
  if not part.valid then call.callbacks[#call.callbacks + 1] = pointer end
  return pointer
end

-- Converts an input. Returns what C gets, and the number of entries if the input was a table.
function Binding:input(call, part, value)
  if value == nil or type(value) == "number" then return value end
  if part.role == "callback" and type(value) == "function" then return self:callback(call, part, value) end
  if part.role == "list" or part.role == "texts" then return self:list(call, part, value) end
  if part.role == "struct" and type(value) == "table" then
    local struct = self.structs[element_of(part.type)]
    local place = ffi.new(struct.name)
    self:fill(call, struct, place, value)
    call.keep[#call.keep + 1] = place
    return place
  end
  call.keep[#call.keep + 1] = value
  return value
end

-- Reads the fields of a handle, such as plan.rows: those of the struct that dsc_X_info() fills in for dsc_X_t.
function Binding:info(handle, part)
  local name = element_of(part.type):gsub("_t$", "_info")
  local place = ffi.new(name .. "_t[1]")
  place[0].struct_size = ffi.sizeof(name .. "_t")
  self:check(self.library[name](handle, place))
  return setmetatable({}, {__index = function(_, field) return tonumber(place[0][field]) end})
end

-- Returns what a name in a length stands for.
function Binding:value(call, name)
  local value, part = call.values[name], index(call.entry.arguments)[name]
  if value ~= nil and part.role == "handle" then return self:info(value, part) end
  if call.lengths[name] then return lengths.list(value, call.lengths[name]) end
  if value ~= nil and part.role == "number" and part.type:find("*", 1, true) then return tonumber(value[0]) end
  if value ~= nil then return value end
  if name ~= "size" and name ~= "rank" then return nil end
  for _, argument in ipairs(call.entry.arguments) do
    if argument.type:find("dsc_comm_t") and argument.role == "handle" then
      local found = ffi.new("int32_t[1]")
      self:check(self.library["dsc_comm_" .. name](call.values[argument.name], found))
      return found[0]
    end
  end
end

-- Refuses a buffer that is smaller than the length that api.json states.
function Binding:check_size(call, part)
  local value = call.values[part.name]
  if type(value) ~= "cdata" or not part.length or part.role ~= "data" then return end
  local n = lengths.evaluate(part.length, function(name) return self:value(call, name) end)
  local has_size, bytes = pcall(ffi.sizeof, value)
  if not n or not has_size or ffi.typeof(value) == ffi.typeof("void*") then return end
  local width = 1
  if part.element == "dtype" then
    local found = ffi.new("size_t[1]")
    self:check(self.library.dsc_dtype_bytes(call.values.dtype, found))
    width = tonumber(found[0])
  elseif part.element ~= "byte" then return end
  if bytes < n * width then
    error(string.format("%s: %s has %d bytes, expected %d (%s elements)", call.entry.name, part.name, bytes, n * width, part.length), 0)
  end
end

function Binding:check(code)
  if code >= 0 then return code end
  local failure = {code = ffi.string(self.library.dsc_result_name(code)), message = ffi.string(self.library.dsc_last_error_message())}
  error(setmetatable(failure, Failure), 0)
end

-- Makes room for an output. Returns nil for outputs that are asked for in a second call, when their size is known.
function Binding:room(call, part, n)
  local element = element_of(part.type)
  if part.role == "number" then return ffi.new(element .. "[1]") end
  if part.role == "new_handle" or part.role == "handle" then return ffi.new(element .. "*[1]") end
  if part.role == "view" or part.role == "address" then return ffi.new("void*[1]") end
  if part.role == "struct" then
    local place = ffi.new(element .. "[1]")
    if index(self.structs[element].fields).struct_size then place[0].struct_size = self.structs[element].size end
    return place
  end
  if not n then return nil end
  local entry = part.role == "texts" and "const char*" or (part.role == "text" or part.role == "data") and "char" or element
  local array = ffi.new(entry .. "[?]", math.max(n, 1))
  if self.structs[element] and n > 0 then array[0].struct_size = self.structs[element].size end
  return array
end

-- Returns an output as a Lua value: a number, a string, or a table with indices from 1.
function Binding:output(part, place, n)
  if part.role == "number" then return tonumber(place[0]) end
  if part.role == "text" then return ffi.string(place) end
  if part.role == "data" then return ffi.string(place, n) end
  if part.role == "list" or part.role == "texts" then
    local list = {}
    for i = 1, n do
      local entry = place[i - 1]
      list[i] = part.role == "texts" and ffi.string(entry) or self.structs[element_of(part.type)] and entry or tonumber(entry)
    end
    return setmetatable(list, {memory = place})
  end
  return place[0]
end

-- Returns the name of the argument that says how much room an output has, if the library tells how much it needs.
local function capacity_of(part)
  return part.needed and part.length:match("^[%w_]*capacity")
end

-- Whether the program passes the memory of a part: everything that a call moves, but not bytes whose size it returns.
local function is_buffer(part)
  return part.role == "data" and not capacity_of(part)
end

-- Returns a set of the parts that the binding computes: what is not passed and not returned.
local function computed_of(arguments)
  local computed = {needed = true, struct_size = true, context = true}
  for _, part in ipairs(arguments) do
    if capacity_of(part) then computed[capacity_of(part)] = true end
  end
  return computed
end

-- Takes the inputs of a call from the arguments that the program gave.
function Binding:take(call, given, n_given)
  local next_given, counts, computed = 1, {}, computed_of(call.entry.arguments)
  for _, part in ipairs(call.entry.arguments) do
    local is_input = part.direction ~= "out" and not capacity_of(part) or is_buffer(part) or part.null and part.role == "new_handle"
    local is_counted = counts[part.name] ~= nil
    if is_counted then call.values[part.name] = counts[part.name]
    elseif not computed[part.name] and is_input and not (part.role == "struct" and part.direction == "inout") then
      local value, n = self:input(call, part, given[next_given])
      if part.role == "new_handle" then value = value and ffi.new(element_of(part.type) .. "*[1]") end
      call.values[part.name], next_given = value, next_given + 1
      if n then counts[part.length], call.lengths[part.name] = n, n end
    end
  end
  if n_given >= next_given then error(call.entry.name .. ": " .. n_given .. " arguments given, expected at most " .. next_given - 1, 3) end
end

function Binding:arguments(call)
  local list, n = {}, #call.entry.arguments
  for i, part in ipairs(call.entry.arguments) do
    local value = call.values[part.name]
    list[i] = value
  end
  return unpack(list, 1, n)
end

-- Sets the capacities of the first call. Texts and bytes get some room, because a few calls must not be repeated: they
-- remove or change what they return. Lists are asked for their length first.
function Binding:first_capacities(call)
  for _, part in ipairs(call.entry.arguments) do
    local name = capacity_of(part)
    if name then call.values[name] = (part.role == "text" or part.role == "data") and 1024 or call.values[name] or 0 end
  end
end

-- Returns how many entries or bytes an output needs, as the library has told.
function Binding:needed(call, part)
  return lengths.evaluate(part.needed, function(name) return self:value(call, name) end)
end

-- Raises the capacities that were too small. Returns whether there are any.
function Binding:raise_capacities(call)
  local are_raised = false
  for _, part in ipairs(call.entry.arguments) do
    local name = capacity_of(part)
    if name and name == part.length and self:needed(call, part) > call.values[name] then
      call.values[name], are_raised = self:needed(call, part), true
    end
  end
  return are_raised
end

-- Makes room for the outputs: all at first, and those with a capacity again when the library has told their size.
function Binding:prepare(call)
  for _, part in ipairs(call.entry.arguments) do
    local is_sized = capacity_of(part) and part.direction ~= "in"
    if part.name == "struct_size" then call.values.struct_size = self.structs[element_of(call.entry.arguments[1].type)].size
    elseif part.direction ~= "in" and (is_sized or call.values[part.name] == nil) and not (part.role == "new_handle" and part.null) and not is_buffer(part) then
      local n = part.length and lengths.evaluate(part.length, function(name) return self:value(call, name) end)
      call.values[part.name] = self:room(call, part, n)
      call.lengths[part.name] = not is_sized and n or nil
    end
  end
end

-- Returns the outputs in the order of the arguments.
function Binding:results(call)
  local list, n = {}, 0
  for _, part in ipairs(call.entry.arguments) do
    local place = call.values[part.name]
    local is_list = part.direction == "inout" and part.role == "list" and not capacity_of(part)
    local is_output = part.direction ~= "in" and not is_buffer(part) and part.name ~= "needed"
    if is_output and not is_list then
      local entries = call.lengths[part.name] or capacity_of(part) and self:needed(call, part)
      n = n + 1
      if place ~= nil then list[n] = self:output(part, place, entries) end
    end
  end
  return list, n
end

local STATES = {DSC_DONE = true, DSC_IN_PROGRESS = true}

function Binding:call(entry, ...)
  local call = {entry = entry, values = {}, keep = {}, callbacks = {}, lengths = {}}
  self:take(call, {...}, select("#", ...))
  self:first_capacities(call)
  self:prepare(call)
  for _, part in ipairs(entry.arguments) do self:check_size(call, part) end
  local code = self.library[entry.name](self:arguments(call))
  if entry.returns ~= "dsc_result_t" then return type(code) == "cdata" and ffi.string(code) or code end
  if code >= 0 and self:raise_capacities(call) then
    self:prepare(call)
    code = self.library[entry.name](self:arguments(call))
  end
  for _, pointer in ipairs(call.callbacks) do pointer:free() end
  self:check(code)
  local results, n = self:results(call)
  for _, name in ipairs(entry.codes) do
    if STATES[name] then return ffi.string(self.library.dsc_result_name(code)), unpack(results, 1, n) end
  end
  return unpack(results, 1, n)
end

-- Returns a table with all functions and constants of api.json without their prefix, such as all_reduce and OP_SUM.
local function load(description, library)
  local file = assert(io.open(description))
  local api = assert(json.decode(file:read("*a")))
  file:close()
  assert(api.format == 1, "api.json has format " .. tostring(api.format) .. ", expected 1")
  ffi.cdef(declare.text(api))
  declare.verify(api, ffi)
  local binding = setmetatable({library = ffi.load(library or api.library)}, Binding)
  binding.handles, binding.structs, binding.callbacks = index(api.handles), index(api.structs), index(api.callbacks)
  local module = {}
  for _, enum in ipairs(api.enums) do
    for _, value in ipairs(enum.values) do module[value.name:gsub("^DSC_", "")] = value.value end
  end
  for _, entry in ipairs(api.functions) do
    module[entry.name:gsub("^dsc_", "")] = function(...) return binding:call(entry, ...) end
  end
  return module
end

return {load = load}
