-- Admits a write, and raises the mark to its token.
local token, nonce = tonumber(ARGV[1]), ARGV[2]
if token > mark.high then
  redis.call('HSET', KEYS[1], 'v', '1', 'high', ARGV[1], 'nonce', nonce)
  return { now, 'admitted', token }
end
if token < mark.high or not mark.nonce then return { now, 'stale', mark.high } end
if mark.nonce == nonce then return { now, 'admitted', token } end
return { now, 'collision', mark.high }
