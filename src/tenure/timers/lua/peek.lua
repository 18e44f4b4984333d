-- ARGV: …, 'waiting' | 'in_flight' | 'dead', offset, limit, bytes_max.
-- Returns rows of id, payload, version, deliveries, failures, due, score, node, reason; the least score first.
local state, offset, limit, bytes_max = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local key = ({waiting = DUE, in_flight = LEASED, dead = DEAD})[state]
local found, bytes = redis.call('ZRANGE', key, offset, offset + limit - 1, 'WITHSCORES'), 0
local answer, answers = rows()

local function letter_of(version, packed)
  local t = {version = tonumber(version)}
  t.id, t.deliveries, t.failures, t.due, t.node, t.reason, t.payload = cmsgpack.unpack(packed)
  return t
end

local function live_of(id, record, score)
  local t = unpacked(id, redis.call('HGET', STATE, id)) or untouched(id, record, score)
  t.payload = payload_of(record)
  return t
end

key = state == 'dead' and LETTER or RECORD
for i = 1, #found, 2 do
  local name, score = found[i], tonumber(found[i + 1])
  bytes = bytes + redis.call('HSTRLEN', key, name)
  if i > 1 and bytes > bytes_max then
    break
  end
  local packed = redis.call('HGET', key, name)
  if packed then
    local t = state == 'dead' and letter_of(name, packed) or live_of(name, packed, score)
    answer(t.id, t.payload, t.version, t.deliveries, t.failures, t.due, score, t.node, t.reason)
  end
end
return {answers()}
