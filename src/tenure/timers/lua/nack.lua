-- ARGV: …, max_deliveries, '1' where the delivery was not used, then per timer: id, token, version, delay, reason.
-- Returns per timer 0 due again | 1 lost | 2 superseded | 3 dead.
local max_deliveries, unused = tonumber(ARGV[3]), ARGV[4] == '1'
local FIRST, WIDTH = 5, 5
local timers, places = held(FIRST, WIDTH)
if #timers == 0 then
  return cmsgpack.pack(places)
end

local before, soonest = head(), nil
local spent, scores, fields = {}, {}, {}
for _, t in ipairs(timers) do
  local reason = ARGV[t.at + 4]
  if unused then
    t.deliveries = t.deliveries - 1
  elseif reason ~= '' then
    t.failures, t.reason = t.failures + 1, reason
  end
  if t.deliveries >= max_deliveries then
    spent[#spent + 1] = t
    places[(t.at - FIRST) / WIDTH + 1] = 3
  else
    local due = now + tonumber(ARGV[t.at + 3])
    t.token, t.node = '', ''
    scores[#scores + 1], scores[#scores + 2] = due, t.id
    fields[#fields + 1], fields[#fields + 2] = t.id, state_of(t)
    soonest = math.min(soonest or due, due)
  end
end

write('ZREM', LEASED, ids_of(timers))
write('ZADD', DUE, scores)
write('HSET', STATE, fields)
if #spent > 0 then
  bury(spent, many(RECORD, ids_of(spent)))
end
count('nacked', #timers)
wake(before, soonest)
return cmsgpack.pack(places)
