-- Some entries of a stream, in order, as many as fit into a reply; an entry that is too large is
-- sent without its content.
--
-- KEYS: the stream. ARGV: the first id, limits for entries and for bytes and fields of an entry,
-- the last id. The reply has a list for each entry, like take.lua's: {id, entry, 0, {name, value,
-- ...}} or {id, large, bytes, fields}.
local bytes_max, fields_max = tonumber(ARGV[3]), tonumber(ARGV[4])
local out, bytes_left, fields_left = {}, bytes_max, 16 * fields_max
local entries = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[5], 'COUNT', ARGV[2])

for i = 1, #entries do
    local id, fields = entries[i][1], entries[i][2]
    local bytes, n = 0, #fields / 2
    for k = 1, #fields do
        bytes = bytes + #fields[k]
    end
    if bytes > bytes_max or n > fields_max then
        out[#out + 1] = {id, 'large', bytes, n}
    elseif #out > 0 and (bytes > bytes_left or n > fields_left) then
        break
    else
        out[#out + 1] = {id, 'entry', 0, fields}
        bytes_left = bytes_left - bytes
        fields_left = fields_left - n
    end
end
return out
