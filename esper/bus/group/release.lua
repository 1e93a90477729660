-- Hands back what is pending for a consumer, a bounded number a call, and removes the consumer once nothing is left.
-- KEYS[1] stream
-- ARGV    group, consumer, most entries to look at, ids of those whose last delivery does not count
-- Returns how many were handed back, and 1 where there is more to do.
local stream, group, consumer, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local rows = redis.pcall('XPENDING', stream, group, '-', '+', most, consumer)
if rows.err then return {0, 0} end  -- no group, and so nothing to hand back

local unread = {}
for i = 4, #ARGV do unread[ARGV[i]] = true end
for i = 1, #rows do
  local id, deliveries = rows[i][1], rows[i][4]
  if unread[id] then deliveries = math.max(0, deliveries - 1) end
  -- Delivered at the beginning of time, it is idle for longer than any reclaim waits.
  redis.call('XCLAIM', stream, group, 'released', 0, id, 'TIME', 1, 'RETRYCOUNT', deliveries, 'JUSTID')
end
if #redis.call('XPENDING', stream, group, '-', '+', 1, consumer) > 0 then return {#rows, 1} end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
return {#rows, 0}
