-- ARGV: …, id. Returns nothing, or 'waiting' | 'in_flight' and one row of peek.
local id = ARGV[3]
local t = timer_of(id)
if not t then
  return {}
end
local due, deadline = redis.call('ZSCORE', DUE, id), redis.call('ZSCORE', LEASED, id)
local payload = payload_of(redis.call('HGET', RECORD, id) or '')
local answer, answers = rows()
answer(id, payload, t.version, t.deliveries, t.failures, t.due, tonumber(due or deadline or 0), t.node, t.reason)
return {due and 'waiting' or 'in_flight', answers()}
