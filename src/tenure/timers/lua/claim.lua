-- ARGV: …, count, bytes_max, lease_ms, token, node, max_deliveries.
-- Returns deadline, the delay until the next score (-1: none), and rows of id, payload, version, deliveries, failures,
-- due. Lapsed leases come first, then what is due.
local limit, bytes_max, lease_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local token, node, max_deliveries = ARGV[6], ARGV[7], tonumber(ARGV[8])
local deadline = now + lease_ms

local lapsed = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, limit)
local ids = {unpack(lapsed)}
if #ids < limit then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, limit - #ids)) do
    ids[#ids + 1] = id
  end
end
if #ids == 0 then
  return {deadline, head_delay(), '\144', ''}
end

-- Take whole timers while they fit; the first always does.
local metas, timers, touched, bytes = many(META, ids), {}, {}, 0
for i, id in ipairs(ids) do
  local t = unpacked(id, metas[i])
  local size = t and t.size or 0
  if #touched > 0 and bytes + size > bytes_max then
    break
  end
  bytes = bytes + size
  touched[#touched + 1] = id
  timers[#timers + 1] = t or {id = id}
end

local payloads = many(PAYLOAD, touched)
local scores, fields, orphans, spent, wills, again = {}, {}, {}, {}, {}, 0
local answer, answers = rows()
for i, t in ipairs(timers) do
  if not t.version or not payloads[i] then
    orphans[#orphans + 1] = t.id
  elseif t.deliveries >= max_deliveries then
    if t.reason == '' then
      t.reason = 'its lease ran out at delivery ' .. t.deliveries
    end
    spent[#spent + 1] = t
    wills[#wills + 1] = payloads[i]
  else
    if i <= #lapsed then
      again = again + 1
    end
    t.deliveries, t.token, t.node = t.deliveries + 1, token, node
    scores[#scores + 1], scores[#scores + 2] = deadline, t.id
    fields[#fields + 1], fields[#fields + 2] = t.id, pack(t)
    answer(t.id, payloads[i], t.version, t.deliveries, t.failures, t.due)
  end
end

redis.call('ZREM', DUE, unpack(touched))
if #lapsed > 0 then
  redis.call('ZREM', LEASED, unpack(touched))
end
write('ZADD', LEASED, scores)
write('HSET', META, fields)
if #orphans > 0 then
  write('HDEL', META, orphans)
  write('HDEL', PAYLOAD, orphans)
  count('orphaned', #orphans)
end
if #spent > 0 then
  bury(spent, wills)
end
count('delivered', #scores / 2)
count('lapsed', again)
return {deadline, head_delay(), answers()}
