-- The point of no return.
local r, why = load(KEYS[1])
if not r then return { text(now), 'garbled', why } end
local lost = loss(r, ARGV[1], tonumber(ARGV[2]))
if lost then return { text(now), lost } end
r.marked = 1
save(r)
return { text(now), 'marked' }
