-- ARGV: …, operation, id. Returns 'cancelled', 'in_flight' or 'unknown'.
local op, id = ARGV[3], ARGV[4]
if REPEATED and redis.call('ZSCORE', OPS, op) then
  return 'cancelled'
end
local t = timer_of(id)
if not t then
  return 'unknown'
end
local deadline = tonumber(redis.call('ZSCORE', LEASED, id))
if deadline and deadline > now then
  return 'in_flight'
end
redis.call('ZREM', DUE, id)
redis.call('ZREM', LEASED, id)
drop({id})
remember({t, {op = op, version = now_us}})
count('cancelled', 1)
return 'cancelled'
