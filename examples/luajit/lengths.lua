-- Evaluates the lengths of api.json, such as "size * count", "n_parts + 1", "sum(counts)" or "max(a, b)".

local M = {}

-- A list of numbers in C's memory as a table with indices from 0.
function M.list(pointer, n)
  local view = setmetatable({n = n}, {__index = function(_, i) return tonumber(pointer[i]) end})
  return view
end

local function sum(list)
  local total = 0
  for i = 0, list.n - 1 do total = total + list[i] end
  return total
end

-- Returns the value of a length. values(name) gives an argument, a field or a term; nil means that it is not known, and
-- so is the length.
function M.evaluate(text, values)
  local scope = setmetatable({}, {__index = function(_, name)
    if name == "sum" then return sum end
    if name == "max" then return math.max end
    local value = values(name)
    if value == nil then error({unknown = name}) end
    return value
  end})
  local chunk = setfenv(assert(loadstring("return " .. text)), scope)
  local is_known, value = pcall(chunk)
  if is_known then return tonumber(value) end
  if type(value) == "table" and value.unknown then return nil end
  error(value)
end

return M
