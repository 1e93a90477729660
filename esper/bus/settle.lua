-- Settles one batch: checks everything first, then writes everything, or else writes nothing.
-- KEYS[1]   what this outbox settled last, so that a repeat after a lost reply is recognised
-- KEYS[2..] every key named below, by its number
-- ARGV      token, seconds to remember it,
--           n, n times: key type                             types that keys must have, where they exist
--           n, n times: key field present value              what fields of hashes must hold
--           n, n times: key group consumer m id*m            entries to acknowledge
--           n, n times: key m (field value)*m                entries to add
--           n, n times: key m (field value)*m                fields of hashes to set
local at = 0
local function take() at = at + 1; return ARGV[at] end
local function number() return tonumber(take()) end
local function key() return KEYS[number()] end
local function list(length)
  local items = {}
  for i = 1, length do items[i] = take() end
  return items
end

local token, seconds = take(), take()
local known = redis.call('GET', KEYS[1])
if known and string.sub(known, 1, #token) == token then
  local reply = {'ok'}
  for id in string.gmatch(string.sub(known, #token + 1), '%S+') do reply[#reply + 1] = id end
  return reply
end

for _ = 1, number() do
  local name, wanted = key(), take()
  local found = redis.call('TYPE', name).ok
  if found ~= 'none' and found ~= wanted then return {'type', name, found, wanted} end
end

for _ = 1, number() do
  local name, field, present, value = key(), take(), take(), take()
  local found = redis.call('HGET', name, field)
  if (present == '1' and found ~= value) or (present == '0' and found) then return {'stale', name, field} end
end

local function pending(name, group, consumer, first, last, limit)
  local rows = redis.pcall('XPENDING', name, group, first, last, limit, consumer)
  local ours = {}
  if rows.err then return ours end  -- the group is gone, and every lease with it
  for i = 1, #rows do ours[rows[i][1]] = true end
  return ours
end

local acks = {}
for i = 1, number() do
  local name, group, consumer = key(), take(), take()
  local ids = list(number())
  local ours = pending(name, group, consumer, ids[1], ids[#ids], #ids)
  for j = 1, #ids do
    -- Entries held from earlier may lie between those of this batch: then look for each by itself.
    if not ours[ids[j]] and not pending(name, group, consumer, ids[j], ids[j], 1)[ids[j]] then
      return {'stale', name, ids[j]}
    end
  end
  acks[i] = {name, group, ids}
end

-- From here on nothing may fail. This first one is what a server without memory refuses, with nothing written yet.
redis.call('SET', KEYS[1], token, 'EX', seconds)
local reply = {'ok'}
for _ = 1, number() do
  local name = key()
  reply[#reply + 1] = redis.call('XADD', name, '*', unpack(list(number() * 2)))
end
for _ = 1, number() do
  local name = key()
  redis.call('HSET', name, unpack(list(number() * 2)))
end
for i = 1, #acks do redis.call('XACK', acks[i][1], acks[i][2], unpack(acks[i][3])) end
redis.call('SET', KEYS[1], token .. table.concat(reply, ' ', 2), 'EX', seconds)
return reply
