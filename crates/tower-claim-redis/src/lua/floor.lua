-- Refuses every token at or below the floor from now on. A floor of 0 only asks for the mark.
local floor = tonumber(ARGV[1])
if floor == 0 or floor < mark.high then return { now, 'mark', mark.high } end
redis.call('HSET', KEYS[1], 'v', '1', 'high', ARGV[1])
redis.call('HDEL', KEYS[1], 'nonce')
return { now, 'mark', floor }
