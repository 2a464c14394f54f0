-- The high-water mark of one resource, format version 1. Marks never expire and are never lowered.
local LAST = 9007199254740991
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000000 + clock[2])

local function load(key)
  local raw = redis.pcall('HMGET', key, 'v', 'high', 'nonce')
  if raw.err then
    if string.find(raw.err, 'WRONGTYPE', 1, true) then return nil, 'another type of value is there' end
    error(raw.err)
  end
  if not (raw[1] or raw[2] or raw[3]) then
    if redis.call('EXISTS', key) == 1 then return nil, 'a hash of another kind is there' end
    return { high = 0 }
  end
  if raw[1] ~= '1' then return nil, 'format version ' .. string.sub(tostring(raw[1]), 1, 20) .. ', this program knows 1' end
  local high = raw[2] and string.find(raw[2], '^%d+$') and tonumber(raw[2])
  if not high or high > LAST then return nil, 'its mark is no number' end
  return { high = high, nonce = raw[3] }
end

local mark, why = load(KEYS[1])
if not mark then return { now, 'garbled', why } end
