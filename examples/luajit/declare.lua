-- Turns the types and functions of api.json into declarations for LuaJIT's ffi.

local M = {}

local function parameters(entry)
  local list = {}
  for i, argument in ipairs(entry.arguments) do list[i] = argument.type end
  return #list > 0 and table.concat(list, ", ") or "void"
end

-- "int32_t[64]" and a name become "int32_t name[64]".
local function member(field)
  local element, length = field.type:match("^(.-)(%[%d+%])$")
  return string.format("  %s %s%s;", element or field.type, field.name, length or "")
end

local function struct(entry)
  local lines = {}
  for i, field in ipairs(entry.fields) do lines[i] = member(field) end
  return string.format("struct %s_ {\n%s\n};", entry.name, table.concat(lines, "\n"))
end

-- Returns the text for ffi.cdef. Names of structs come first, because structs and callbacks refer to each other.
function M.text(api)
  local lines = {}
  local function add(format, ...) lines[#lines + 1] = string.format(format, ...) end
  for _, alias in ipairs(api.aliases) do add("typedef %s %s;", alias.type, alias.name) end
  for _, handle in ipairs(api.handles) do add("typedef struct %s_ %s;", handle.name, handle.name) end
  for _, entry in ipairs(api.structs) do add("typedef struct %s_ %s;", entry.name, entry.name) end
  for _, entry in ipairs(api.callbacks) do add("typedef %s (*%s)(%s);", entry.returns, entry.name, parameters(entry)) end
  local waiting = {}
  for _, entry in ipairs(api.structs) do waiting[#waiting + 1] = struct(entry) end
  add("%s", table.concat(waiting, "\n"))
  for _, entry in ipairs(api.functions) do add("%s %s(%s);", entry.returns, entry.name, parameters(entry)) end
  return table.concat(lines, "\n")
end

-- Checks that ffi lays out every struct as the compiler of the library did.
function M.verify(api, ffi)
  for _, entry in ipairs(api.structs) do
    assert(ffi.sizeof(entry.name) == entry.size, entry.name .. " has another size here than in api.json")
    for _, field in ipairs(entry.fields) do
      assert(ffi.offsetof(entry.name, field.name) == field.offset, entry.name .. "." .. field.name .. " is elsewhere")
    end
  end
end

return M
