-- ARGV: …, 'waiting' | 'in_flight' | 'dead', offset, limit, bytes_max.
-- Returns rows of id, payload, version, deliveries, failures, due, score, node, reason; the least score first.
local state, offset, limit, bytes_max = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local key = ({waiting = DUE, in_flight = LEASED, dead = DEAD})[state]
local found, names, bytes = redis.call('ZRANGE', key, offset, offset + limit - 1, 'WITHSCORES'), {}, 0
local answer, answers = rows()
for i = 1, #found, 2 do
  names[#names + 1] = found[i]
end

local function letter(packed, version)
  local t = {version = tonumber(version)}
  t.id, t.deliveries, t.failures, t.due, t.size, t.node, t.reason, t.payload = cmsgpack.unpack(packed)
  return t
end

local packed = many(state == 'dead' and LETTER or META, names)
for i, name in ipairs(names) do
  if packed[i] then
    local t = state == 'dead' and letter(packed[i], name) or unpacked(name, packed[i])
    bytes = bytes + t.size
    if i > 1 and bytes > bytes_max then
      break
    end
    local payload = t.payload or redis.call('HGET', PAYLOAD, name) or ''
    answer(t.id, payload, t.version, t.deliveries, t.failures, t.due, tonumber(found[2 * i]), t.node, t.reason)
  end
end
return {answers()}
