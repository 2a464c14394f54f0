-- Claims every key, or none. Answers the place of the key in the way, and why; or 0 and the grant.
local nonce, fingerprint = ARGV[1], ARGV[2]
local not_after, floor = tonumber(ARGV[3]), tonumber(ARGV[4])
local terms = {
  lease = tonumber(ARGV[5]), cooling = tonumber(ARGV[6]), min_hold = tonumber(ARGV[7]),
  on_lapse = ARGV[8], unfinished_keep = tonumber(ARGV[9]), label = ARGV[10],
}

local function busy(r, same)
  return { 'busy', r.token, left(now, r.since), left(r.ends, now), same, r.label }
end

local function refusal(r)
  if now > not_after then return { 'too_late' } end
  local worth = standing(r)
  if is_last(r, nonce) then
    if r.state == 'held' and worth ~= 'free' then
      return { 'mine', r.token, left(r.ends, now), r.attempt }
    end
    return { 'ended' }
  end
  if is_spent(r, nonce) then return { 'ended' } end
  local same = (r.fingerprint or '') == fingerprint and 1 or 0
  local cooling = left(not_before(r), now)
  if worth == 'held' then return busy(r, same) end
  if worth == 'done' then return done(r, same) end
  if worth == 'unknown' then return { 'unknown', r.token, same } end
  if cooling > 0 then return { 'cooling', cooling, worth == 'free' and 1 or same } end
  if worth == 'lapsed' and same == 0 then return busy(r, same) end
  if (r.spent_folded or 0) > 0 and not_after <= r.spent_folded then return { 'ended' } end
end

local records, token = {}, 0
for i, key in ipairs(KEYS) do
  local r, why = load(key)
  if not r then return { text(now), i, 'garbled', why } end
  local by = refusal(r)
  if by then
    -- A later copy of the same claim: the nonce is remembered as long as any may arrive.
    if #KEYS == 1 and (by[1] == 'mine' or by[1] == 'ended') then
      begin(r)
      remember(r, nonce, not_after)
      save(r)
    end
    return { text(now), i, unpack(by) }
  end
  local one = next_token(r, floor)
  if not one then return { text(now), i, 'inflated' } end
  token = math.max(token, one)
  records[i] = r
end

local attempt, took_over = 0, nil
for _, r in ipairs(records) do
  begin(r)
  local before = 0
  if standing(r) == 'lapsed' then
    before = r.attempt
    took_over = took_over or { r.token, left(now, r.since), left(now, r.last_beat), r.progress }
  end
  if r.state ~= nil then remember_spent(r, r.nonce, r.not_after) end
  forget_work(r)
  r.state, r.token, r.nonce, r.not_after = 'held', token, nonce, not_after
  r.fingerprint = fingerprint ~= '' and fingerprint or nil
  for name, value in pairs(terms) do r[name] = value end
  r.since, r.ends, r.last_beat, r.progress, r.attempt = now, add(now, terms.lease), now, '0', before + 1
  attempt = math.max(attempt, r.attempt)
  save(r)
end
return { text(now), 0, 'granted', token, left(add(now, terms.lease), now), attempt, took_over or false }
