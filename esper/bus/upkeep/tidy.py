"""Takes away consumers and groups that nobody uses any more, never with anything pending unasked."""

from __future__ import annotations

from typing import NamedTuple

from esper.bus.connect import Redis
from esper.bus.names import shown
from esper.errors import SettingError

IDLE_MS = 300_000
# Looked at and deleted in one call: a consumer that comes back between the two would lose what it has just read.
DROP_IDLE = """
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
local dropped = {}
if consumers.err then return dropped end
for i = 1, #consumers do
  local facts = {}
  for j = 1, #consumers[i], 2 do facts[consumers[i][j]] = consumers[i][j + 1] end
  if facts['pending'] == 0 and facts['idle'] >= tonumber(ARGV[2]) and facts['name'] ~= ARGV[3] then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], facts['name'])
    dropped[#dropped + 1] = facts['name']
  end
end
return dropped
"""
FORGET = """
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if groups.err then return false end
for i = 1, #groups do
  local group = {}
  for j = 1, #groups[i], 2 do group[groups[i][j]] = groups[i][j + 1] end
  if group['name'] == ARGV[1] then
    local consumers = redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
    local youngest = -1
    for k = 1, #consumers do
      for j = 1, #consumers[k], 2 do
        local idle = consumers[k][j] == 'idle' and consumers[k][j + 1]
        if idle and (youngest < 0 or idle < youngest) then youngest = idle end
      end
    end
    local live = youngest >= 0 and youngest < tonumber(ARGV[2])
    if not live and ARGV[3] == 'destroy' then redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1]) end
    return {live and 1 or 0, youngest, group['last-delivered-id'], group['pending']}
  end
end
return false
"""


class Position(NamedTuple):
    """Where a group stood: the newest entry it was given, and how many of them it never acknowledged."""

    last_delivered: str
    pending: int


async def drop_idle_consumers(redis: Redis, stream: str, group: str, but: str, idle_ms: int = IDLE_MS) -> list[str]:
    """Delete consumers with nothing pending that have not read for so long, never the one named `but`; who went.

    Those with something pending stay until a live one has taken it over. A live one that had nothing to do for so long
    is made again with the next entry that it is given.
    """
    dropped = await redis.execute_command("EVAL", DROP_IDLE, 1, stream, group, idle_ms, but)
    return [shown(name) for name in dropped]


async def forget_group(
    redis: Redis, stream: str, group: str, *, idle_ms: int = IDLE_MS, dry_run: bool = False
) -> Position | None:
    """Destroy a group that nobody has read by for so long; where it stood. None: there is no such group.

    SettingError where a consumer of it still reads.
    """
    wish = "look" if dry_run else "destroy"
    reply = await redis.execute_command("EVAL", FORGET, 1, stream, group, idle_ms, wish)
    if reply is None:
        return None
    live, youngest_ms, last_delivered, pending = reply
    if live:
        expected = f"one that has not read {stream} for {idle_ms / 1000:g} s; it did {youngest_ms / 1000:.1f} s ago"
        raise SettingError("group", group, expected)
    return Position(last_delivered.decode(), int(pending))
