-- Finishes the work. The token decides, not time; the first value wins.
local r, why = load(KEYS[1])
if not r then return { text(now), 'garbled', why } end
if not is_last(r, ARGV[1]) or tonumber(ARGV[2]) ~= r.token or standing(r) == 'free' then
  return { text(now), 'lost' }
end
if r.state == 'done' then return { text(now), 'finished' } end
if r.state ~= 'held' then return { text(now), 'lost' } end
conclude(r, ARGV[4], tonumber(ARGV[3]), min_hold_end(r))
save(r)
return { text(now), 'finished' }
