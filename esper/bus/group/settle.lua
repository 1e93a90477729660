-- Settles one batch: checks everything first, then writes everything, or else writes nothing.
-- KEYS[1]   what this outbox settled last, so that a repeat after a lost reply is recognised
-- KEYS[2..] every key named below, by its number
-- ARGV      token, seconds to remember it, seconds to remember messages that took effect,
--           n, n times: key type                             types that keys must have, where they exist
--           n, n times: key field present value              what fields of hashes must hold
--           n, n times: key group consumer m id*m            entries to acknowledge
--           n, n times: key first mask                       messages that take effect: bits, from that byte on
--           n, n times: key m (field value)*m                entries to add
--           n, n times: key m (field value)*m                fields of hashes to set; an empty value deletes one
--           n, n times: key m id*m                           entries to delete, each of them acknowledged here
local LAST_ID = '18446744073709551615-18446744073709551615'
local at = 0
local function take() at = at + 1; return ARGV[at] end
local function number() at = at + 1; return tonumber(ARGV[at]) end
local function key() at = at + 1; return KEYS[tonumber(ARGV[at])] end

local token, seconds, seen_seconds = take(), take(), take()
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
  if rows.err then return {} end  -- the group is gone, and every lease with it
  return rows
end

-- The first of ARGV[from..to] that is not pending for this consumer.
local function not_ours(name, group, consumer, from, to)
  local rows, ours = pending(name, group, consumer, ARGV[from], ARGV[to], to - from + 1), nil
  for i = from, to do
    local row = rows[i - from + 1]
    if not row or row[1] ~= ARGV[i] then  -- entries held from earlier lie between those of this batch
      if not ours then
        ours = {}
        for j = 1, #rows do ours[rows[j][1]] = true end
      end
      if not ours[ARGV[i]] and #pending(name, group, consumer, ARGV[i], ARGV[i], 1) == 0 then return ARGV[i] end
    end
  end
end

local acks = {}
for i = 1, number() do
  local name, group, consumer, length = key(), take(), take(), number()
  local stale = not_ours(name, group, consumer, at + 1, at + length)
  if stale then return {'stale', name, stale} end
  acks[i] = {name, group, at + 1, at + length}
  at = at + length
end

local seen, repeats = {}, {'repeated'}
for i = 1, number() do
  local name, first, mask = key(), number(), take()
  local found = redis.call('GETRANGE', name, first, first + #mask - 1)
  if string.find(found, '[^%z]') then
    local merged = {}
    for j = 1, #mask do
      local before, now = string.byte(found, j) or 0, string.byte(mask, j)
      local both = bit.band(before, now)
      if both ~= 0 then repeats[#repeats + 1] = i .. ' ' .. (first + j - 1) .. ' ' .. both end
      merged[j] = string.char(bit.bor(before, now))
    end
    mask = table.concat(merged)
  end
  seen[i] = {name, first, mask}
end
if #repeats > 1 then return repeats end

-- Whether an entry can be added, as far as this user may ask. Of no such stream there is an error, and nothing in it.
local function has_ids(name)
  local told = redis.pcall('XINFO', 'STREAM', name)
  for i = 1, #told, 2 do
    if told[i] == 'last-generated-id' then return told[i + 1] ~= LAST_ID end
  end
  return true
end

local adds, asked = {}, {}
for i = 1, number() do
  local name, length = key(), 2 * number()
  adds[i] = {name, at + 1, at + length}
  at = at + length
end
for i = 1, #adds do
  local name = adds[i][1]
  if name ~= adds[1][1] and not asked[name] then  -- the first is added to before all others, and says so itself
    asked[name] = true
    if not has_ids(name) then return redis.error_reply('ERR ' .. name .. ' has exhausted the last possible ID') end
  end
end

-- From here on nothing may fail but the first write, as on a server without memory: with nothing written yet.
local reply = {'ok'}
for i = 1, #adds do
  reply[i + 1] = redis.call('XADD', adds[i][1], '*', unpack(ARGV, adds[i][2], adds[i][3]))
end
redis.call('SET', KEYS[1], token .. table.concat(reply, ' ', 2), 'EX', seconds)
for _ = 1, number() do
  local name, set, gone = key(), {}, {}
  for _ = 1, number() do
    local field, value = take(), take()
    if value == '' then
      gone[#gone + 1] = field
    else
      set[#set + 1] = field
      set[#set + 1] = value
    end
  end
  if #set > 0 then redis.call('HSET', name, unpack(set)) end
  if #gone > 0 then redis.call('HDEL', name, unpack(gone)) end
end
for i = 1, #seen do
  redis.call('SETRANGE', seen[i][1], seen[i][2], seen[i][3])
  redis.call('EXPIRE', seen[i][1], seen_seconds)
end
for i = 1, #acks do redis.call('XACK', acks[i][1], acks[i][2], unpack(ARGV, acks[i][3], acks[i][4])) end
for _ = 1, number() do
  local name, length = key(), number()
  redis.call('XDEL', name, unpack(ARGV, at + 1, at + length))
  at = at + length
end
return reply
