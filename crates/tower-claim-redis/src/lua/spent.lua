-- Spent nonces: never to be granted (again) until no copy of their claim may arrive. One field for each.
--
-- A hot key has thousands. No script walks them all, it would keep Redis from its other clients: now and
-- then one looks at a few, wherever the last look ended, and forgets those that say nothing any more.
--
-- Beyond EACH about half are folded into an instant: no claim whose not_after is at or before it is
-- granted. So a folded nonce may be forgotten, and each copy of its claim is refused all the same.

local EACH = 4096
-- So few are not worth a look.
local FEW = 16
-- A look every so many nonces, at about so many: four times as fast as they come.
local EVERY, LOOK = 8, 32

local function forget_spent(r, names)
  if #names > 0 then r.spent_count = math.max((r.spent_count or 0) - redis.call('HDEL', r.key, unpack(names)), 0) end
end

-- Folds the earlier half of these, and all like them. One without a not_after cannot fold without closing
-- the key for good: of these half are forgotten.
local function fold_spent(r, seen)
  table.sort(seen, function(a, b) return a.at < b.at end)
  local half = math.ceil(#seen / 2)
  local upto = seen[half].at
  local gone = {}
  if upto < LAST then
    for _, nonce in ipairs(seen) do
      if nonce.at <= upto then gone[#gone + 1] = nonce.name end
    end
  else
    upto = 0
    for n, nonce in ipairs(seen) do
      if nonce.at < LAST then upto = nonce.at end
      if n <= half then gone[n] = nonce.name end
    end
  end
  if upto > 0 then r.spent_folded = math.max(r.spent_folded or 0, upto) end
  forget_spent(r, gone)
end

local function look_at_spent(r)
  local page = redis.call('HSCAN', r.key, text(r.spent_cursor or 0), 'MATCH', 'spent:*', 'COUNT', LOOK)
  r.spent_cursor = page[1] ~= '0' and number(page[1]) or nil
  local fields, seen, gone = page[2], {}, {}
  for i = 1, #fields, 2 do
    local at = instant(fields[i + 1])
    if now > at or at <= (r.spent_folded or 0) then
      gone[#gone + 1] = fields[i]
    else
      seen[#seen + 1] = { name = fields[i], at = at }
    end
  end
  forget_spent(r, gone)
  -- Where many went, a fold is under way, or time does its work.
  if r.spent_count > EACH and #gone * 4 < #seen then fold_spent(r, seen) end
end

local function remember_spent(r, nonce, not_after)
  if now > not_after then return end
  r.spent_latest = math.max(r.spent_latest or 0, not_after)
  local name = 'spent:' .. nonce
  local known = redis.call('HGET', r.key, name)
  if not known or instant(known) < not_after then
    redis.call('HSET', r.key, name, text(not_after))
  end
  if known then return end
  r.spent_count = (r.spent_count or 0) + 1
  if r.spent_count > FEW and r.spent_count % EVERY == 0 then look_at_spent(r) end
end

local function is_spent(r, nonce)
  if not r.spent_latest then return false end
  local known = redis.call('HGET', r.key, 'spent:' .. nonce)
  return known and now <= instant(known)
end
