-- The record of one key, format version 1, and its moves. Each step's script follows this text.
--
-- Times are microseconds of Redis' TIME, below 2^53 as tokens are: exact as doubles. A field that is not
-- there is not set. Every script reads first and writes last, so that one that fails has changed nothing.

local VERSION = '1'
local LAST = 9007199254740991
local DAY = 86400000000
-- Spent nonces: how many one by one, and how few are not worth a search.
local EACH = 4096
local FEW = 16

local FIELDS = {
  'v', 'state', 'token', 'nonce', 'fingerprint', 'not_after', 'since', 'ends', 'not_before',
  'lease', 'cooling', 'min_hold', 'on_lapse', 'unfinished_keep', 'label',
  'last_beat', 'progress', 'attempt', 'marked', 'revoke_asked',
  'spent_latest', 'spent_folded', 'spent_count', 'spent_crowd', 'watched',
}
local WORDS = { v = 1, state = 1, nonce = 1, fingerprint = 1, on_lapse = 1, label = 1, progress = 1 }
local BASE = { 'token', 'nonce', 'not_after', 'since', 'ends' }
local TERMS = { 'lease', 'cooling', 'min_hold', 'on_lapse', 'unfinished_keep', 'label' }
local NEEDS = {
  free = {}, held = { 'last_beat', 'progress', 'attempt' }, done = {},
  unknown = { 'last_beat', 'progress', 'not_before' },
}

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local clock_token = math.floor(now / 1000) * 1024

local function add(a, b)
  return math.min(a + b, LAST)
end

local function left(later, earlier)
  return math.max(later - earlier, 0)
end

local function text(number)
  return string.format('%.0f', number)
end

local function number(digits)
  if #digits > 16 or not string.find(digits, '^%d+$') then return nil end
  local value = tonumber(digits)
  if value > LAST then return nil end
  return value
end

-- A spent nonce's not_after. One that cannot be read is never over.
local function instant(digits)
  return digits and number(digits) or LAST
end

local function hex(digits, length)
  return #digits == length and not string.find(digits, '[^0-9a-f]')
end

-- Progress is a u64, too large for a double.
local function further(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

local function vacant(key, stale)
  return { key = key, raw = {}, token = 0, since = 0, ends = 0, stale = stale }
end

local function check(r)
  if r.v ~= VERSION then
    return 'format version ' .. string.sub(tostring(r.v), 1, 20) .. ', this program knows ' .. VERSION
  end
  if not NEEDS[r.state] then return 'its state is missing or unknown' end
  for name, value in pairs(r.raw) do
    if not WORDS[name] then
      r[name] = number(value)
      if not r[name] then return 'its field ' .. name .. ' is no number' end
    end
  end
  local function lacks(names)
    for _, name in ipairs(names) do
      if not r.raw[name] then return 'its field ' .. name .. ' is missing' end
    end
  end
  local missing = lacks(BASE) or lacks(NEEDS[r.state]) or (r.state ~= 'free' and lacks(TERMS))
  if missing then return missing end
  if not hex(r.nonce, 32) then return 'its field nonce is malformed' end
  if r.fingerprint and not hex(r.fingerprint, 64) then return 'its field fingerprint is malformed' end
  if r.on_lapse and r.on_lapse ~= 'hold' and r.on_lapse ~= 'take_over' then
    return 'its field on_lapse is unknown'
  end
  if r.progress and (#r.progress > 20 or not string.find(r.progress, '^%d+$')) then
    return 'its field progress is no number'
  end
end

local function holds_on(r)
  return r.marked ~= nil or r.on_lapse == 'hold'
end

-- When the phase ends by itself: a hold an unfinished keep after its lapse.
local function ends_at(r)
  if r.state == 'held' then return add(r.ends, r.unfinished_keep) end
  if r.state == 'done' or r.state == 'unknown' then return r.ends end
  return r.since
end

local function min_hold_end(r)
  return add(r.since, r.min_hold or 0)
end

-- Before this nobody is granted the key, were it free.
local function not_before(r)
  if r.state == 'held' then return math.max(add(r.ends, r.cooling), min_hold_end(r)) end
  if r.state == 'unknown' then return r.not_before end
  return r.ends
end

local function standing(r)
  if r.state == nil or r.state == 'free' then return 'free' end
  if now < r.ends then return r.state end
  if r.state ~= 'held' or now >= ends_at(r) then return 'free' end
  return holds_on(r) and 'unknown' or 'lapsed'
end

-- From when on nothing would be lost with the record, if nobody touches it.
local function forgettable_at(r)
  local calls = math.max(r.not_after, r.spent_latest or 0) + 1
  local token = (math.floor(r.token / 1024) + 1) * 1000
  return math.max(ends_at(r), not_before(r), calls, token)
end

local function forgettable(r)
  return standing(r) == 'free' and now >= forgettable_at(r) and clock_token > r.token
end

-- The record, a vacant one where there is none or none that says anything; nil and why where it cannot be
-- read.
local function load(key)
  local raw = redis.pcall('HMGET', key, unpack(FIELDS))
  if raw.err then
    if string.find(raw.err, 'WRONGTYPE', 1, true) then return nil, 'another type of value is there' end
    error(raw.err)
  end
  local r = vacant(key)
  local fields = 0
  for i, name in ipairs(FIELDS) do
    if raw[i] then
      r.raw[name] = raw[i]
      r[name] = raw[i]
      fields = fields + 1
    end
  end
  if fields == 0 then
    if redis.call('EXISTS', key) == 1 then return nil, 'a hash of another kind is there' end
    return r
  end
  local why = check(r)
  if why then return nil, why end
  if forgettable(r) then return vacant(key, true) end
  return r
end

-- Before the first write: what an absent record would not have goes.
local function begin(r)
  if r.stale then
    redis.call('UNLINK', r.key)
    r.stale = nil
  end
end

local function save(r)
  if r.state == nil then return end
  begin(r)
  r.v = VERSION
  local set, gone = {}, {}
  for _, name in ipairs(FIELDS) do
    local value = r[name]
    if type(value) == 'number' then value = text(value) end
    if value == nil then
      if r.raw[name] then gone[#gone + 1] = name end
    elseif value ~= r.raw[name] then
      set[#set + 1] = name
      set[#set + 1] = value
    end
  end
  if r.raw.state == 'done' and r.state ~= 'done' then gone[#gone + 1] = 'value' end
  if #set > 0 then redis.call('HSET', r.key, unpack(set)) end
  if #gone > 0 then redis.call('HDEL', r.key, unpack(gone)) end
  -- Redis drops it when it says nothing any more, whatever has become of it. What is live stays a day
  -- longer: a clock that jumps forth and back ends no hold. Every move sets this anew.
  local forget = forgettable_at(r)
  if r.state == 'held' or r.state == 'unknown' then forget = add(forget, DAY) end
  if forget >= LAST then
    redis.call('PERSIST', r.key)
  else
    redis.call('PEXPIREAT', r.key, text(math.ceil(forget / 1000) + 1))
  end
  -- Who waits is told when a hold begins or ends. A user without the right to publish has the poll.
  local was, is = r.raw.state == 'held', r.state == 'held'
  if (was ~= is or r.raw.token ~= text(r.token)) and (r.watched or 0) > now then
    local cut = #r.key - 64
    redis.pcall('PUBLISH', string.sub(r.key, 1, cut) .. 'bell', string.sub(r.key, cut + 1))
  end
end

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
