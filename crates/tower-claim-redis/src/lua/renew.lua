-- Beats: of each key the nonce, the token and the progress.
local answers = { text(now) }
for i, key in ipairs(KEYS) do
  local nonce, token, progress = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
  local r, why = load(key)
  local lost = r and loss(r, nonce, token)
  if not r then
    answers[i + 1] = { 'garbled', why }
  elseif lost then
    answers[i + 1] = { lost }
  else
    -- A beat that arrives late, or a lease shorter than what is left, shortens nothing.
    r.ends = math.max(r.ends, add(now, r.lease))
    r.last_beat = now
    if further(progress, r.progress) then r.progress = progress end
    save(r)
    answers[i + 1] = { 'renewed', left(r.ends, now), r.revoke_asked or 0 }
  end
end
return answers
