-- What became of the hold with this token. Of one that goes on the record notes that somebody waits: only
-- then its end is published.
local r, why = load(KEYS[1])
if not r then return { text(now), 'garbled', why } end
local token, worth = tonumber(ARGV[1]), standing(r)
if r.token == token then
  if worth == 'held' then
    local wait = tonumber(ARGV[2])
    if (r.watched or 0) < now + wait / 2 then redis.call('HSET', r.key, 'watched', text(now + wait)) end
    return { text(now), 'until', text(r.ends) }
  end
  if worth == 'done' then return { text(now), unpack(done(r, 1)) } end
  return { text(now), 'ended' }
end
if r.token > token and (worth == 'held' or worth == 'lapsed' or worth == 'done') then
  return { text(now), 'superseded', r.token }
end
return { text(now), 'ended' }
