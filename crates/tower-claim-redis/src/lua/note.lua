-- A note for a minute: two connections that both see it lead to the same database.
redis.call('HSET', KEYS[1], 'v', '1')
local clock = redis.call('TIME')
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', clock[1] * 1000 + 60000))
