-- The moves that several scripts share.

local function is_last(r, nonce)
  return r.state ~= nil and r.nonce == nonce
end

-- Remembers a nonce that is never to be granted, as long as its claim may be under way.
local function remember(r, nonce, not_after)
  if is_last(r, nonce) then
    r.not_after = math.max(r.not_after, not_after)
  elseif now > not_after then
    return
  elseif r.state == nil then
    r.state, r.nonce, r.not_after, r.since, r.ends = 'free', nonce, not_after, now, now
  else
    remember_spent(r, nonce, not_after)
  end
end

local function forget_work(r)
  r.last_beat, r.progress, r.attempt, r.marked, r.revoke_asked = nil, nil, nil, nil, nil
  r.not_before = nil
end

local function free(r, since, until_then)
  r.state, r.since, r.ends = 'free', since, until_then
  r.fingerprint = nil
  for _, name in ipairs(TERMS) do r[name] = nil end
  forget_work(r)
end

-- nil where no token is left above the floor.
local function next_token(r, floor)
  local token = math.min(math.max(r.token + 1, floor + 1, clock_token), LAST)
  if token > r.token and token > floor then return token end
end

-- Why this owner does not hold the key any more; nil when it does.
local function loss(r, nonce, token)
  if not is_last(r, nonce) then return 'superseded' end
  if token ~= r.token then return 'broken' end
  local worth = standing(r)
  if worth == 'held' then return nil end
  if r.state == 'held' and worth ~= 'free' then return 'lapsed' end
  return 'superseded'
end

-- The result stays at least as long as the key has to stay taken.
local function conclude(r, value, keep, until_then)
  r.state, r.since, r.ends = 'done', now, math.max(add(now, keep), until_then)
  forget_work(r)
  -- Were the result gone, nobody would be granted the key before.
  if until_then > now then r.not_before = until_then end
  if value then redis.call('HSET', r.key, 'value', value) end
end

local function become_unknown(r, until_then)
  r.state, r.since, r.ends = 'unknown', now, add(now, r.unfinished_keep)
  r.not_before = until_then
  r.attempt, r.revoke_asked = nil, nil
end

-- A result of the record, or false for a tombstone.
local function done(r, same)
  return { 'done', r.token, same, left(now, r.since), left(r.ends, now), redis.call('HGET', r.key, 'value') }
end
