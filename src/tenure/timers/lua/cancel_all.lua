-- ARGV: …, limit. Cancels up to so many timers that nobody holds: lapsed leases, then what waits, the soonest first.
-- Returns how many, and how many of them are left.
local limit = tonumber(ARGV[3])
local ids = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, limit)
if #ids < limit then
  for _, id in ipairs(redis.call('ZRANGE', DUE, 0, limit - #ids - 1)) do
    ids[#ids + 1] = id
  end
end

local timers = {}
for _, id in ipairs(ids) do
  timers[#timers + 1] = timer_of(id)
end
write('ZREM', DUE, ids)
write('ZREM', LEASED, ids)
drop(ids)
if #timers > 0 then
  remember(timers)
  count('cancelled', #timers)
end
return {#ids, redis.call('ZCARD', DUE) + redis.call('ZCOUNT', LEASED, '-inf', now)}
