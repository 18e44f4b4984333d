-- ARGV: …, then per timer: id, token, version, reason. Returns per timer 0 done | 1 lost | 2 superseded.
local timers, places = held(3, 4)
local ids = ids_of(timers)
for _, t in ipairs(timers) do
  t.reason = ARGV[t.at + 3]
end
write('ZREM', LEASED, ids)
if #timers > 0 then
  bury(timers, many(RECORD, ids))
end
return cmsgpack.pack(places)
