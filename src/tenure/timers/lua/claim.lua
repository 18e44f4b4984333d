-- ARGV: …, count, bytes_max, lease_ms, token, node, max_deliveries.
-- Returns deadline, the delay until the next score (-1: none), and rows of id, payload, version, deliveries, failures,
-- due. Lapsed leases come first, then what is due.
local limit, bytes_max, lease_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local token, node, max_deliveries = ARGV[6], ARGV[7], tonumber(ARGV[8])
local deadline = now + lease_ms

local lapsed = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, limit)
local ids, dues = {unpack(lapsed)}, {}
if #ids < limit then
  local due = redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit - #ids)
  for i = 1, #due, 2 do
    ids[#ids + 1] = due[i]
    dues[#ids] = tonumber(due[i + 1])
  end
end
if #ids == 0 then
  return {deadline, head_delay(), '\144', ''}
end

-- Take whole timers while they fit; the first always does. No payload is read before it is known to fit.
local touched, bytes = {}, 0
for _, id in ipairs(ids) do
  bytes = bytes + math.max(redis.call('HSTRLEN', RECORD, id) - HEADER_BYTES, 0)
  if #touched > 0 and bytes > bytes_max then
    break
  end
  touched[#touched + 1] = id
end

local records, states = many(RECORD, touched), many(STATE, touched)
local scores, fields, orphans, spent, wills, again = {}, {}, {}, {}, {}, 0
local answer, answers = rows()
for i, id in ipairs(touched) do
  local t = records[i] and (unpacked(id, states[i]) or untouched(id, records[i], dues[i] or now))
  if not t then
    orphans[#orphans + 1] = id
  elseif t.deliveries >= max_deliveries then
    if t.reason == '' then
      t.reason = 'its lease ran out at delivery ' .. t.deliveries
    end
    spent[#spent + 1] = t
    wills[#wills + 1] = records[i]
  else
    if i <= #lapsed then
      again = again + 1
    end
    t.deliveries, t.token, t.node = t.deliveries + 1, token, node
    scores[#scores + 1], scores[#scores + 2] = deadline, t.id
    fields[#fields + 1], fields[#fields + 2] = t.id, state_of(t)
    answer(t.id, payload_of(records[i]), t.version, t.deliveries, t.failures, t.due)
  end
end

redis.call('ZREM', DUE, unpack(touched))
if #lapsed > 0 then
  redis.call('ZREM', LEASED, unpack(touched))
end
write('ZADD', LEASED, scores)
write('HSET', STATE, fields)
if #orphans > 0 then
  drop(orphans)
  count('orphaned', #orphans)
end
if #spent > 0 then
  bury(spent, wills)
end
count('delivered', #scores / 2)
count('lapsed', again)
return {deadline, head_delay(), answers()}
