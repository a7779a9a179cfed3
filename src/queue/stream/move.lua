-- Sets the idle time of entries anew, under our name or another one, if they are still ours. An
-- entry that was not begun is given back without that delivery in its count.
--
-- KEYS: the stream. ARGV: group, our name, the new name, idle in ms, deliveries that do not count;
-- then ids. The reply has a list for each entry that was not moved: its id and a word of take.lua.
local stream, group, me, to, idle = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local less = tonumber(ARGV[5])
local out = {}

for i = 6, #ARGV do
    local id = ARGV[i]
    local held = redis.call('XPENDING', stream, group, id, id, 1)[1]
    local word
    if held and held[2] == me then
        local count = math.max(held[4] - less, 0)
        local moved = redis.call('XCLAIM', stream, group, to, 0, id, 'IDLE', idle,
                                 'RETRYCOUNT', count, 'JUSTID')
        if #moved == 0 then
            word = 'deleted'
        end
    elseif held then
        word = 'other'
    elseif redis.call('XRANGE', stream, id, id)[1] then
        word = 'none'
    else
        word = 'deleted'
    end
    if word then
        out[#out + 1] = {id, word}
    end
end
return out
