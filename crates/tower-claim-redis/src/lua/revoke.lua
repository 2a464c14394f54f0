-- Asks the owner to stop.
local r, why = load(KEYS[1])
if not r then return { text(now), 'garbled', why } end
if standing(r) ~= 'held' or r.token ~= tonumber(ARGV[1]) then return { text(now), 'none' } end
r.revoke_asked = 1
save(r)
return { text(now), 'asked' }
