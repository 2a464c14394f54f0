-- Settles an unknown outcome: with a keep as done, without one as absent.
local r, why = load(KEYS[1])
if not r then return { text(now), 'garbled', why } end
if r.state == nil then return { text(now), 'absent' } end
if standing(r) ~= 'unknown' or r.token ~= tonumber(ARGV[1]) then
  return { text(now), 'conflict', r.token }
end
local token = next_token(r, 0)
if not token then return { text(now), 'inflated' } end
local until_then, keep = not_before(r), tonumber(ARGV[2])
if keep then conclude(r, ARGV[3], keep, until_then) else free(r, now, until_then) end
r.token = token
save(r)
return { text(now), 'resolved', token }
