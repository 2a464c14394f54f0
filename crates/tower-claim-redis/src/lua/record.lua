-- The record of one key, format version 1, and its moves. Each step's script follows this text.
--
-- Times are microseconds of Redis' TIME, below 2^53 as tokens are: exact as doubles. A field that is not
-- there is not set. Every script reads first and writes last, so that one that fails has changed nothing.

local VERSION = '1'
local LAST = 9007199254740991
local DAY = 86400000000

local FIELDS = {
  'v', 'state', 'token', 'nonce', 'fingerprint', 'not_after', 'since', 'ends', 'not_before',
  'lease', 'cooling', 'min_hold', 'on_lapse', 'unfinished_keep', 'label',
  'last_beat', 'progress', 'attempt', 'marked', 'revoke_asked',
  'spent_latest', 'spent_folded', 'spent_count', 'spent_cursor', 'watched',
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

