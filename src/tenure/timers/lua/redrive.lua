-- ARGV: …, operation, limit, then versions, or none for the oldest ones up to the limit.
-- Returns how many are timers again, then the versions that stay or are not there.
local op, limit, versions = ARGV[3], tonumber(ARGV[4]), {unpack(ARGV, 5)}
if #versions == 0 then
  versions = redis.call('ZRANGE', DEAD, 0, limit - 1)
end

local letters, timers, skipped = many(LETTER, versions), {}, {}
local ids = {}
for i, version in ipairs(versions) do
  local id = letters[i] and cmsgpack.unpack(letters[i])
  ids[i] = id or ''
end
local taken, version = {}, nil
for i, old in ipairs(versions) do
  if letters[i] and redis.call('HEXISTS', RECORD, ids[i]) == 0 and not taken[ids[i]] then
    local t = {old = old, deliveries = 0, failures = 0, token = '', node = '', op = op .. struct.pack('>I2', i)}
    local _
    t.id, _, _, t.due, _, t.reason, t.payload = cmsgpack.unpack(letters[i])
    version = next_version(version)
    t.version, taken[t.id] = version, true
    timers[#timers + 1] = t
  else
    skipped[#skipped + 1] = tonumber(old)
  end
end
if #timers == 0 then
  return {0, unpack(skipped)}
end

local before = head()
local olds, scores, states, records = {}, {}, {}, {}
for i, t in ipairs(timers) do
  olds[i] = t.old
  scores[2 * i - 1], scores[2 * i] = now, t.id
  states[2 * i - 1], states[2 * i] = t.id, state_of(t)
  records[2 * i - 1], records[2 * i] = t.id, record_of(t)
end
write('ZADD', DUE, scores)
write('HSET', STATE, states)
write('HSET', RECORD, records)
redis.call('HSET', TOPIC, 'version', version)
write('ZREM', DEAD, olds)
write('HDEL', LETTER, olds)
count('redriven', #timers)
wake(before, now)
return {#timers, unpack(skipped)}
