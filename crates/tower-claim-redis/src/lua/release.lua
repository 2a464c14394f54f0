-- Gives keys back: of each the nonce, the token or nothing, and the not_after of its claim.
local function release(r, nonce, token)
  local ours = is_last(r, nonce)
  local worth = standing(r)
  if ours and (token == nil or token == r.token) and (worth == 'held' or worth == 'lapsed') then
    if worth == 'held' and r.marked then
      become_unknown(r, min_hold_end(r))
    else
      -- A clean release does not cool.
      free(r, now, min_hold_end(r))
    end
    return 'released'
  end
  if ours and (worth == 'done' or worth == 'unknown') then return 'lost' end
  return 'already'
end

local answers = { text(now) }
for i, key in ipairs(KEYS) do
  local nonce, not_after = ARGV[3 * i - 2], tonumber(ARGV[3 * i])
  local r, why = load(key)
  if r then
    begin(r)
    answers[i + 1] = { release(r, nonce, tonumber(ARGV[3 * i - 1])) }
    remember(r, nonce, not_after)
    save(r)
  else
    answers[i + 1] = { 'garbled', why }
  end
end
return answers
