-- ARGV: …, timers_max, on_conflict, then per timer: id, operation, 'in' | 'at', ms, payload.
-- Returns 'ok' and rows of version, due, 0 created | 1 replaced | 2 kept; or 'conflict' and ids; or 'full', count.
local timers_max, on_conflict = tonumber(ARGV[3]), ARGV[4]
local FIRST, WIDTH = 5, 5
local CREATED, REPLACED, KEPT = 0, 1, 2

local ids = {}
for i = FIRST, #ARGV, WIDTH do
  ids[#ids + 1] = ARGV[i]
end
local there = {}
for _, id in ipairs(ids) do
  there[id] = timer_of(id) or false
end

local version, fresh, written, ended, conflicts = nil, 0, {}, {}, {}
local answer, answers = rows()

local function due_of(at, from)
  local ms = tonumber(ARGV[at + 3])
  return ARGV[at + 2] == 'in' and from + ms or ms
end

for i, id in ipairs(ids) do
  local at = FIRST + (i - 1) * WIDTH
  local op, old = ARGV[at + 1], there[id]
  local settled = REPEATED and redis.call('ZSCORE', OPS, op)
  -- Also where this copy does not know that it is one: it may have been overtaken by a later one.
  if old and old.op == op then
    answer(old.version, old.due, CREATED)
  elseif settled then
    answer(tonumber(settled), due_of(at, math.floor(tonumber(settled) / 1000)), CREATED)
  elseif old and on_conflict == 'keep' then
    answer(old.version, old.due, KEPT)
  elseif old and on_conflict == 'error' then
    conflicts[#conflicts + 1] = id
  else
    version = next_version(version)
    local t = {id = id, version = version, due = due_of(at, now)}
    t.op, t.payload = op, ARGV[at + 4]
    if old then
      ended[#ended + 1] = old
    else
      fresh = fresh + 1
    end
    there[id] = t
    written[#written + 1] = t
    answer(t.version, t.due, old and REPLACED or CREATED)
  end
end

if #conflicts > 0 then
  return {'conflict', unpack(conflicts)}
end
if fresh > 0 then
  local total = redis.call('ZCARD', DUE) + redis.call('ZCARD', LEASED) + redis.call('ZCARD', DEAD)
  if total + fresh > timers_max then
    return {'full', total}
  end
end
if #written == 0 then
  return {'ok', answers()}
end

-- An id that stands twice in one call was written twice above; its last version is the one that counts.
local before, soonest = head(), nil
local scores, records, final = {}, {}, {}
for _, t in ipairs(written) do
  if there[t.id] == t then
    scores[#scores + 1], scores[#scores + 2] = t.due, t.id
    records[#records + 1], records[#records + 2] = t.id, record_of(t)
    final[#final + 1] = t.id
    soonest = math.min(soonest or t.due, t.due)
  end
end
write('ZADD', DUE, scores)
write('HSET', RECORD, records)
redis.call('HSET', TOPIC, 'version', version)
if #ended > 0 then
  write('ZREM', LEASED, final)
  write('HDEL', STATE, final)
  remember(ended)
end
count('scheduled', #written)
count('replaced', #ended)
wake(before, soonest)
return {'ok', answers()}
