"""The scripts that Redis runs for us: what must be looked at and changed in one step.

A script that Redis refuses (full, read-only, short of replicas) is refused at its first write, and
runs to its end after it. So the first write of each is one that a full Redis refuses: a hash is
never removed for one that then finds no room.
"""

__all__ = ["ACCEPT", "APPLIED", "CURSOR_FIELDS", "REFUSED", "TAKEN", "WRITE"]

CURSOR_FIELDS = ("generation", "epoch", "mark", "token", "lift")
"""What a cursor's hash holds. `lift` is added to the generation of rows, see `ACCEPT`."""

APPLIED, REFUSED, TAKEN = range(3)
"""How `WRITE` answers. Behind `REFUSED` comes what the cursor holds; behind `TAKEN`, the place of
the row whose key holds something else than a hash."""

_FIELDS = ", ".join(f"'{name}'" for name in CURSOR_FIELDS)

WRITE = f"""
-- KEYS: the cursor, then those of the rows.
-- ARGV: 1 token; 2-4 the cursor it must be at, each '' if none; 5-7 the cursor to be put there,
-- each '' while rows are still to come; 8 the generation; 9 who writes; 10 how long a tombstone
-- lives, in ms; 11 for each row its version, and the names and texts of its fields.
local held = redis.call('HMGET', KEYS[1], {_FIELDS})
local function at(place) return held[place] or '' end
if tonumber(held[4] or 0) > tonumber(ARGV[1])
    or at(1) ~= ARGV[2] or at(2) ~= ARGV[3] or at(3) ~= ARGV[4] then
  return {{{REFUSED}, unpack(held, 1, 4)}}
end

-- Look at every key before one is changed.
local rank = string.format('%06d.', ARGV[8] + (held[5] or 0))
local writes = {{}}
for n, row in ipairs(cmsgpack.unpack(ARGV[11])) do
  local key, version = KEYS[n + 1], rank .. row[1]
  local old = redis.pcall('HMGET', key, '_version', '_writer')
  if old.err then return {{{TAKEN}, n - 1}} end
  if not old[1] or old[2] ~= ARGV[9] or old[1] < version then
    writes[#writes + 1] = {{key, version, row[2]}}
  end
end

redis.call('HSET', KEYS[1], 'token', ARGV[1])
for _, write in ipairs(writes) do
  local key, version, texts = unpack(write)
  redis.call('DEL', key)
  redis.call('HSET', key, '_version', version, '_writer', ARGV[9])
  -- Lua takes no more than some thousand arguments at once.
  for first = 1, #texts, 1000 do
    redis.call('HSET', key, unpack(texts, first, math.min(first + 999, #texts)))
  end
  if #texts == 0 then
    redis.call('HSET', key, '_deleted', '1')
    redis.call('PEXPIRE', key, ARGV[10])
  end
end
if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[1], 'generation', ARGV[5], 'epoch', ARGV[6], 'mark', ARGV[7])
end
return {{{APPLIED}}}
"""

ACCEPT = f"""
-- KEYS: the cursor. ARGV: 1-3 the cursor to be put there, 4 token.
-- A cursor that is put back would have its next rows lose to those that are there. They are
-- lifted above them.
local held = redis.call('HMGET', KEYS[1], {_FIELDS})
local lift = tonumber(held[5] or 0)
if held[3] then
  local back = tonumber(ARGV[1]) - tonumber(held[1])
  if back < 0 or (back == 0 and tonumber(ARGV[2]) < tonumber(held[2])) then
    lift = lift + 1 - back
  end
end
redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'epoch', ARGV[2], 'mark', ARGV[3],
  'token', ARGV[4], 'lift', lift)
return {{{APPLIED}}}
"""
