-- Ends a hold by force. The owner may be at work still: the key cools from now on, as after a crash.
local r, why = load(KEYS[1])
if not r then return { text(now), 'garbled', why } end
if r.state == nil then return { text(now), 'absent' } end
local worth = standing(r)
if (worth ~= 'held' and worth ~= 'lapsed') or r.token ~= tonumber(ARGV[1]) then
  return { text(now), 'conflict', r.token }
end
local token = next_token(r, 0)
if not token then return { text(now), 'inflated' } end
local unknown = holds_on(r)
-- The record stays until the owner's next beat has learnt who ended its hold.
r.not_after = math.max(r.not_after, r.ends)
-- Cooling counts from the end of the hold, which is now where it has not lapsed before.
r.ends = math.min(r.ends, now)
local until_then = not_before(r)
if unknown then become_unknown(r, until_then) else free(r, now, until_then) end
r.token = token
save(r)
return { text(now), 'broken', token }
