-- ARGV: …, lease_ms, then per timer: id, token, version. Returns deadline, and per timer 0 | 1 lost | 2 superseded.
local deadline = now + tonumber(ARGV[3])
local timers, places = held(4, 3)
local ids, scores = ids_of(timers), {}
for i, id in ipairs(ids) do
  scores[2 * i - 1], scores[2 * i] = deadline, id
end
-- Removed first: a removal is allowed without memory, and what follows the first write is too.
write('ZREM', LEASED, ids)
write('ZADD', LEASED, scores)
return {deadline, cmsgpack.pack(places)}
