-- Trims one stream below what any of its groups still needs. One call: no group can appear or move in between.
-- KEYS[1]  the stream
-- ARGV     ~ or =: by whole nodes or exactly
--          an id below which entries are too old, or nothing
--          how many entries are kept at most, ignored where there are groups; `any`: however many; or nothing: trimmed
--          only with groups
--          names of groups that must exist, else nothing is trimmed
local how, floor, most = ARGV[1], ARGV[2], ARGV[3]

local function before(one, other)  -- numbers of a stream go up to 2^64, which Lua's own can't hold
  local a, b = string.match(one, '(%d+)%-(%d+)')
  local c, d = string.match(other, '(%d+)%-(%d+)')
  if a ~= c then return #a < #c or (#a == #c and a < c) end
  return #b < #d or (#b == #d and b < d)
end

local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if groups.err then return 0 end  -- there is no such stream

local there, needed = {}, nil
for i = 1, #groups do
  local facts = {}
  for j = 1, #groups[i], 2 do facts[groups[i][j]] = groups[i][j + 1] end
  there[facts['name']] = true
  local id = facts['last-delivered-id']
  if facts['pending'] > 0 then id = redis.call('XPENDING', KEYS[1], facts['name'])[2] end
  if not needed or before(id, needed) then needed = id end
end
for i = 4, #ARGV do
  if not there[ARGV[i]] then return 0 end
end

if most == '' and not needed then return 0 end
if floor == '' or (needed and before(needed, floor)) then floor = needed end
local trimmed = redis.call('XTRIM', KEYS[1], 'MINID', how, floor)
if not needed and most ~= 'any' then trimmed = trimmed + redis.call('XTRIM', KEYS[1], 'MAXLEN', how, most) end
return trimmed
