-- Takes entries that were delivered before, in one step: entries that are pending under our name,
-- under nobody's name, or idle under another name. The content of an entry that is too large is not
-- sent, and a reply has no more than fits, but always the first entry.
--
-- KEYS: the stream. ARGV: group, our name, nobody's name, min-idle in ms, limits for bytes and
-- fields of an entry; then ids. The reply has a list for each entry, with its id and a word:
--
--     id, entry, deliveries, {name, value, ...}
--     id, large, bytes, fields      it is ours now, too
--     id, later                     it was not looked at
--     id, other | none | deleted    another consumer has it; it is pending nowhere; it is not in
--                                   the stream, and was acknowledged
local stream, group, me, nobody = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local min_idle, bytes_max, fields_max = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local out, bytes_left, fields_left = {}, bytes_max, 16 * fields_max
local full = false

local function measure(fields)
    local bytes = 0
    for i = 1, #fields do
        bytes = bytes + #fields[i]
    end
    return bytes, #fields / 2
end

local function take(id)
    local held = redis.call('XPENDING', stream, group, id, id, 1)[1]
    if held and held[2] ~= me and held[2] ~= nobody and held[3] < min_idle then
        return {id, 'other'}
    end
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if not entry then
        redis.call('XACK', stream, group, id)
        return {id, 'deleted'}
    end
    if not held then
        return {id, 'none'}
    end
    local bytes, fields = measure(entry[2])
    local large = bytes > bytes_max or fields > fields_max
    if not large and #out > 0 and (bytes > bytes_left or fields > fields_left) then
        full = true
        return {id, 'later'}
    end
    redis.call('XCLAIM', stream, group, me, 0, id, 'RETRYCOUNT', held[4] + 1, 'JUSTID')
    if large then
        return {id, 'large', bytes, fields}
    end
    bytes_left = bytes_left - bytes
    fields_left = fields_left - fields
    return {id, 'entry', held[4] + 1, entry[2]}
end

for i = 7, #ARGV do
    out[#out + 1] = full and {ARGV[i], 'later'} or take(ARGV[i])
end
return out
