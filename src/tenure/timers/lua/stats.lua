-- Returns now, due later, due now, lapsed, leased, dead, the next score (-1: none), then the counters.
local lapsed = redis.call('ZCOUNT', LEASED, '-inf', now)
local ready = redis.call('ZCOUNT', DUE, '-inf', now)
local reply = {now, redis.call('ZCARD', DUE) - ready, ready, lapsed, redis.call('ZCARD', LEASED) - lapsed}
reply[6], reply[7] = redis.call('ZCARD', DEAD), head() or -1
local names = {'scheduled', 'replaced', 'delivered', 'lapsed', 'committed', 'nacked', 'dead', 'cancelled', 'redriven'}
names[#names + 1] = 'orphaned'
for i, value in ipairs(many(TOPIC, names)) do
  reply[7 + i] = tonumber(value) or 0
end
return reply
