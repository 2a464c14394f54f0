-- Spent nonces ----------------------------------------------------------------------------------------

local function each_spent(key, visit)
  local names = {}
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if string.sub(name, 1, 6) == 'spent:' then names[#names + 1] = name end
  end
  for from = 1, #names, 500 do
    local some = { unpack(names, from, math.min(from + 499, #names)) }
    for i, at in ipairs(redis.call('HMGET', key, unpack(some))) do
      visit(some[i], instant(at))
    end
  end
end

-- Forgets those that this names; answers how many are left.
local function drop_spent(key, goes)
  local gone, stay = {}, 0
  each_spent(key, function(name, at)
    if goes(at) then gone[#gone + 1] = name else stay = stay + 1 end
  end)
  for from = 1, #gone, 500 do
    redis.call('HDEL', key, unpack(gone, from, math.min(from + 499, #gone)))
  end
  return stay
end

-- Beyond the bound the earlier half folds into an instant: no claim whose not_after is at or before it is
-- granted. One without a not_after cannot fold without closing the key for good: of these half are
-- forgotten.
local function fold_spent(r)
  local ends = {}
  each_spent(r.key, function(_, at) ends[#ends + 1] = at end)
  table.sort(ends)
  local middle = ends[EACH / 2 + 1]
  if middle < LAST then
    r.spent_folded = math.max(r.spent_folded or 0, middle)
    return drop_spent(r.key, function(at) return at <= middle end)
  end
  local room = EACH / 2
  local early = 0
  for _, at in ipairs(ends) do
    if at < LAST then early = at end
  end
  if early > 0 then r.spent_folded = math.max(r.spent_folded or 0, early) end
  return drop_spent(r.key, function(at)
    if at < LAST or room == 0 then return true end
    room = room - 1
    return false
  end)
end

local function remember_spent(r, nonce, not_after)
  if r.spent_latest and now > r.spent_latest then
    drop_spent(r.key, function() return true end)
    r.spent_latest, r.spent_folded, r.spent_count, r.spent_crowd = nil, nil, nil, nil
  end
  if now > not_after then return end
  r.spent_latest = math.max(r.spent_latest or 0, not_after)
  local name = 'spent:' .. nonce
  local known = redis.call('HGET', r.key, name)
  if not known then r.spent_count = (r.spent_count or 0) + 1 end
  if not known or instant(known) < not_after then
    redis.call('HSET', r.key, name, text(not_after))
  end
  if (r.spent_count or 0) > math.max(r.spent_crowd or 0, FEW) then
    local count = drop_spent(r.key, function(at) return now > at end)
    if count > EACH then count = fold_spent(r) end
    r.spent_count = count
    r.spent_crowd = math.min(count * 2, EACH)
  end
end

local function is_spent(r, nonce)
  if not r.spent_latest then return false end
  local known = redis.call('HGET', r.key, 'spent:' .. nonce)
  return known and now <= instant(known)
end

-- Moves -------------------------------------------------------------------------------------------------

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
