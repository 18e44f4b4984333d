-- ARGV: …, id. Returns nothing, or 'waiting' | 'in_flight' and what peek returns.
local id = ARGV[3]
local t = unpacked(id, redis.call('HGET', META, id))
if not t then
  return {}
end
local due, deadline = redis.call('ZSCORE', DUE, id), redis.call('ZSCORE', LEASED, id)
local payload = redis.call('HGET', PAYLOAD, id) or ''
local reply = {due and 'waiting' or 'in_flight', id, payload, t.version, t.deliveries, t.failures, t.due}
reply[8], reply[9], reply[10] = tonumber(due or deadline or 0), t.node, t.reason
return reply
