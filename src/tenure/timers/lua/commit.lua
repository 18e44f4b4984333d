-- ARGV: …, then per timer: id, token, version. Returns per timer 0 done | 1 lost | 2 superseded.
local timers, places = held(3, 3)
local ids = ids_of(timers)
write('ZREM', LEASED, ids)
drop(ids)
if #timers > 0 then
  remember(timers)
  count('committed', #timers)
end
return cmsgpack.pack(places)
