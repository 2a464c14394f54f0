-- Records as people see them.
local function peek(r)
  local worth = standing(r)
  local state, since, ends = worth, r.since, r.ends
  if worth == 'free' then
    since, ends = ends_at(r), not_before(r)
  elseif worth == 'lapsed' then
    state = 'held'
  elseif worth == 'unknown' and r.state == 'held' then
    since, ends = r.ends, ends_at(r)
  end
  local live = worth ~= 'free'
  local working = live and r.state ~= 'done'
  return {
    state, r.token, r.nonce, left(now, since), left(ends, now),
    live and r.label or '', live and r.fingerprint or '',
    working and left(now, r.last_beat) or 0, working and r.progress or '0',
    working and r.marked or 0, live and r.state == 'held' and now >= r.ends and 1 or 0,
    live and r.state == 'held' and r.attempt or 0,
  }
end

local answers = { text(now) }
for i, key in ipairs(KEYS) do
  local r, why = load(key)
  if not r then
    answers[i + 1] = { 'garbled', why }
  elseif r.state == nil then
    answers[i + 1] = { 'absent' }
  else
    answers[i + 1] = peek(r)
  end
end
return answers
