-- Takes one delivery off entries that a consumer which lives had in hand: whoever holds them now, for as long as now.
-- KEYS[1] stream
-- ARGV    group, most deliveries of which one is taken off, ids
-- Returns for how many.
local stream, group, most, number = KEYS[1], ARGV[1], tonumber(ARGV[2]), 0
for i = 3, #ARGV do
  local rows = redis.pcall('XPENDING', stream, group, ARGV[i], ARGV[i], 1)
  if rows.err then return number end  -- no group, and so nothing that counts
  local row = rows[1]
  if row and row[4] > 1 and row[4] <= most then
    redis.call('XCLAIM', stream, group, row[2], 0, row[1], 'IDLE', row[3], 'RETRYCOUNT', row[4] - 1, 'JUSTID')
    number = number + 1
  end
end
return number
