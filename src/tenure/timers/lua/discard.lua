-- ARGV: …, limit, then versions, or none for the oldest ones up to the limit. Returns how many dead letters are gone.
local limit, versions = tonumber(ARGV[3]), {unpack(ARGV, 4)}
if #versions == 0 then
  versions = redis.call('ZRANGE', DEAD, 0, limit - 1)
end
if #versions == 0 then
  return 0
end
local gone = redis.call('ZREM', DEAD, unpack(versions))
redis.call('HDEL', LETTER, unpack(versions))
return gone
