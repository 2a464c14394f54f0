-- Drops a result: the key is free again, and nothing of the work is left.
local r, why = load(KEYS[1])
if not r then return { text(now), 'garbled', why } end
local worth = standing(r)
if worth == 'free' then
  -- Whoever hears that nothing is there may count on it: also where a keep has just passed.
  begin(r)
  if r.state == 'done' then
    free(r, ends_at(r), not_before(r))
    save(r)
  end
  return { text(now), 'absent' }
end
if worth ~= 'done' or r.token ~= tonumber(ARGV[1]) then
  return { text(now), 'conflict', r.token }
end
local token = next_token(r, 0)
if not token then return { text(now), 'inflated' } end
free(r, now, r.not_before or now)
r.token = token
save(r)
return { text(now), 'purged', token }
