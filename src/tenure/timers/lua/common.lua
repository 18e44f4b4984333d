-- In front of every script. KEYS are those of one topic, always all of them; ARGV[1] is its wake-up channel, ARGV[2] is
-- '1' where an earlier copy of this call may have arrived. Times are the server's, in ms unless the name says us.
-- Replies of many numbers or texts are one MessagePack array and one string: clients parse long RESP arrays slowly.
local DUE, LEASED, RECORD, STATE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local DEAD, LETTER, OPS, TOPIC = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local CHANNEL, REPEATED = ARGV[1], ARGV[2] == '1'
local OPS_KEPT_US = 60000000

local clock = redis.call('TIME')
local now_us = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = math.floor(now_us / 1000)

-- A record is what was scheduled and never changes: 7 bytes of version, 8 of operation, then the payload. A timer that
-- was handed out or redriven has a state besides; one that was not is due at its score, and nothing else is known of it.
local OP_FIRST, PAYLOAD_FIRST = 8, 16
local HEADER_BYTES = PAYLOAD_FIRST - 1

local function record_of(t)
  return struct.pack('>I7', t.version) .. t.op .. t.payload
end

local function payload_of(record)
  return string.sub(record, PAYLOAD_FIRST)
end

local function state_of(t)
  return cmsgpack.pack(t.version, t.op, t.deliveries, t.failures, t.due, t.token, t.node, t.reason)
end

-- A timer from its state, or nil where it has none.
local function unpacked(id, state)
  if not state then
    return nil
  end
  local t = {id = id}
  t.version, t.op, t.deliveries, t.failures, t.due, t.token, t.node, t.reason = cmsgpack.unpack(state)
  return t
end

-- A timer that was never handed out, from its record.
local function untouched(id, record, due)
  local t = {id = id, version = struct.unpack('>I7', record), op = string.sub(record, OP_FIRST, HEADER_BYTES), due = due}
  t.deliveries, t.failures, t.token, t.node, t.reason = 0, 0, '', '', ''
  return t
end

-- The timer of an id, or nil where there is none.
local function timer_of(id)
  local t = unpacked(id, redis.call('HGET', STATE, id))
  local record = not t and redis.call('HGET', RECORD, id)
  if record then
    t = untouched(id, record, tonumber(redis.call('ZSCORE', DUE, id) or 0))
  end
  return t
end

-- HMGET of at least one field.
local function many(key, fields)
  if #fields == 0 then
    return {}
  end
  return redis.call('HMGET', key, unpack(fields))
end

-- Run a command with any number of arguments after its key; none, no command.
local function write(command, key, args)
  if #args > 0 then
    redis.call(command, key, unpack(args))
  end
end

local function count(counter, by)
  if by > 0 then
    redis.call('HINCRBY', TOPIC, counter, by)
  end
end

-- The next version, greater than every one before it, also after a flush.
local function next_version(last)
  return math.max((last or tonumber(redis.call('HGET', TOPIC, 'version')) or 0) + 1, now_us)
end

-- The least score of the topic, due or lease, or nil.
local function head()
  local least = nil
  for _, key in ipairs({DUE, LEASED}) do
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[2] and (not least or tonumber(first[2]) < least) then
      least = tonumber(first[2])
    end
  end
  return least
end

-- How long until the next score, 0 where it has passed, -1 where there is none.
local function head_delay()
  local least = head()
  return least and math.max(least - now, 0) or -1
end

-- Tell sleepers that something is due sooner than all that was there. Refused by an ACL, they look by themselves.
local function wake(before, due)
  if due and (not before or due < before) then
    redis.pcall('PUBLISH', CHANNEL, math.max(due - now, 0))
  end
end

-- Remember the schedules of timers that end, while a copy of their call may still be on its way.
local function remember(timers)
  local young = {}
  for _, t in ipairs(timers) do
    if t.version > now_us - OPS_KEPT_US then
      young[#young + 1] = t.version
      young[#young + 1] = t.op
    end
  end
  write('ZADD', OPS, young)
  local limit = #timers + 10
  write('ZREM', OPS, redis.call('ZRANGEBYSCORE', OPS, '-inf', now_us - OPS_KEPT_US, 'LIMIT', 0, limit))
end

-- Forget timers that stand in no sorted set any more.
local function drop(ids)
  write('HDEL', RECORD, ids)
  write('HDEL', STATE, ids)
end

-- Move timers that stand in no sorted set any more to the dead letters.
local function bury(timers, records)
  local scores, letters, ids = {}, {}, {}
  for i, t in ipairs(timers) do
    local payload = records[i] and payload_of(records[i]) or ''
    local letter = cmsgpack.pack(t.id, t.deliveries, t.failures, t.due, t.node, t.reason, payload)
    scores[#scores + 1], scores[#scores + 2] = now, t.version
    letters[#letters + 1], letters[#letters + 2] = t.version, letter
    ids[i] = t.id
  end
  drop(ids)
  write('ZADD', DEAD, scores)
  write('HSET', LETTER, letters)
  remember(timers)
  count('dead', #timers)
end

-- Sort what a worker says it holds, `width` arguments each from ARGV[first] on: id, token, version, and what follows.
-- Returns the timers it does hold, each with `at`, the index of its first argument, and per place 0, 1 (lost) or
-- 2 (superseded).
local function held(first, width)
  local ids, places, seen = {}, {}, {}
  for i = first, #ARGV, width do
    ids[#ids + 1] = ARGV[i]
  end
  local states, timers = many(STATE, ids), {}
  for i, id in ipairs(ids) do
    local at = first + (i - 1) * width
    local t = unpacked(id, states[i]) or timer_of(id)
    if t and t.version ~= tonumber(ARGV[at + 2]) then
      places[i] = 2
    elseif not t or t.token == '' or t.token ~= ARGV[at + 1] or seen[id] then
      places[i] = 1
    else
      places[i], t.at, seen[id] = 0, at, true
      timers[#timers + 1] = t
    end
  end
  return timers, places
end

-- Rows of texts and numbers as two values: all numbers, the lengths of the texts among them, and all texts.
local function rows()
  local numbers, texts = {}, {}
  local function add(...)
    for _, value in ipairs({...}) do
      if type(value) == 'string' then
        texts[#texts + 1] = value
        value = #value
      end
      numbers[#numbers + 1] = value
    end
  end
  return add, function()
    return cmsgpack.pack(numbers), table.concat(texts)
  end
end

local function ids_of(timers)
  local ids = {}
  for i, t in ipairs(timers) do
    ids[i] = t.id
  end
  return ids
end
