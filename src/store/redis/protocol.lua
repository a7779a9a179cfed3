-- The protocol inside the server. redis_script.c cuts this file into parts at the
-- lines that begin with --@, writes the rules of the two tables of protocol/table.c
-- in place of RULES, and makes one script of the parts that it needs.
--
-- A record is one string, described below.
--
-- It has no time of day. A key's own time to live is the clock: `life` is the key's
-- life when the record was last written, so the part that is missing of it is the
-- time since then. In ms from that same moment, `due` is when its lease ends or its
-- retry is due, `age` is the age of the record, and `lag` the time since its last
-- change; a renewal is no change.
--
-- The server removes a key in the ms after its last, the protocol in the last: so a
-- life is written one ms shorter, and read one ms longer.
--
-- Numbers are big-endian. They are made of bytes that the record and the arguments
-- have already, wherever that is possible: struct.pack takes longer than everything
-- else here.
--
--     form 1, flags 2, state 3, prior state 4, attempt 5-8, tries 9-12, owner
--     13-28, definition 29-32, fingerprint 33-64, life 65-70, due 71-76, age
--     77-82, lag 83-88, status 89-92, lengths of label 93-94 and reason 95-96;
--     binding (32, if bound); prior (52, while it runs): tries, definition,
--     fingerprint, what was left of its life, age; label, reason, result
--
--     flags   1 lock, 2 kept, 4 final, 8 released, 16 bound
--     states  0 absent, 1 issued, 2 running, 3 done, 4 failed

--@ begin
local key = KEYS[1]
local call, sub, byte, char, floor = redis.call, string.sub, string.byte, string.char, math.floor
local publish = redis.pcall -- a user without the right to publish can still finish: waiters have a slow poll
local v = call('GET', key)

--@ straight
-- Nearly every finish: done, of a first attempt that is neither a lock nor bound, under its owner. It
-- is the table's first rule, decided by one comparison; the rest of the script has the same result.
-- ARGV[5]: the first 28 bytes of such a record, and the 28 bytes that replace them.
local head = ARGV[5]
if v and head ~= '' and sub(v, 1, 28) == sub(head, 1, 28) then
    local q, life, _, age = ARGV[1], struct.unpack('>I6c6I6', v, 65)
    local left, a, b = call('PTTL', key) + 1, byte(v, 93, 94)
    age = life > left and age + life - left or age
    call('SET', key, sub(head, 29, 56) .. sub(v, 29, 64) .. sub(q, 27, 38)
        .. char(floor(age / 1099511627776), floor(age / 4294967296) % 256, floor(age / 16777216) % 256,
            floor(age / 65536) % 256, floor(age / 256) % 256, age % 256, 0, 0, 0, 0, 0, 0)
        .. sub(q, 23, 26) .. sub(v, 93, 94) .. sub(q, 39, 40) .. sub(v, 149, 148 + a * 256 + b) .. ARGV[2] .. ARGV[3],
        'PX', ARGV[4])
    publish('PUBLISH_', key, '')
    return 0
end

--@ head
local flags, state, from, bound, rest, labels, reasons = 0, 0, 0, 0, 0, 0, 0
if v then
    local form, f, s, p = byte(v, 1, 4)
    if #v < 96 or form ~= 225 then
        return redis.error_reply(form and form > 225 and form < 240 and 'IDEM newer' or 'IDEM damaged')
    end
    local a, b, c, d = byte(v, 93, 96)
    flags, state, from, labels, reasons = f, s, p, a * 256 + b, c * 256 + d
    bound = f % 32 >= 16 and 32 or 0
    rest = 97 + bound + (s == 2 and 52 or 0)
    if s < 1 or s > 4 or #v < rest - 1 + labels + reasons then return redis.error_reply('IDEM damaged') end
end

--@ times
-- The rest of its life, and the time since it was written.
local life, due, age, lag, left, since
if v then
    life, due, age, lag = struct.unpack('>I6I6I6I6', v, 65)
    left = call('PTTL', key) + 1
    if left == 0 then return redis.error_reply('IDEM damaged') end -- a record always has an end
    since = life > left and life - left or 0
end
local function six(n)
    local high = floor(n / 16777216)
    return char(floor(high / 65536) % 256, floor(high / 256) % 256, high % 256, floor(n / 65536) % 256,
        floor(n / 256) % 256, n % 256)
end
local function four(n)
    return char(floor(n / 16777216) % 256, floor(n / 65536) % 256, floor(n / 256) % 256, n % 256)
end
local function two(n)
    return char(floor(n / 256), n % 256)
end
local NOTHING = '\0\0\0\0\0\0'

--@ claim
-- ARGV[1]: owner 1-16, definition 17-20, fingerprint 21-52, options 53, attempts 54-57, lease 58-63,
-- life 64-69, ttl 70-75. ARGV[2]: binding, [3]: label, [4] and [5]: life and ttl for PX.
local band = bit.band
local q = ARGV[1]
local mine, options = sub(q, 1, 16), byte(q, 53)
local attempts = struct.unpack('>I4', q, 54)
local tries = v and struct.unpack('>I4', v, 9) or 0
local facts = band(options, 1) + band(options, 32) + (band(options, 8) ~= 0 and 256 or 0)
    + (band(options, 4) ~= 0 and 2048 or 0)
if v then
    -- In a definition that is computed, the lowest bit is not compared: protocol/record.h.
    local odd = byte(v, 29) >= 128 and 1 or 0
    if bound == #ARGV[2] and (bound == 0 or sub(v, 97, 128) == ARGV[2]) then facts = facts + 2 end
    if sub(v, 13, 28) == mine and flags % 16 < 8 then facts = facts + 4 end
    if sub(q, 17, 20) ~= '\0\0\0\0' and sub(q, 17, 19) == sub(v, 29, 31)
        and byte(q, 20) - byte(q, 20) % (1 + odd) == byte(v, 32) - byte(v, 32) % (1 + odd)
        and sub(q, 21, 52) ~= sub(v, 33, 64) then
        facts = facts + 8
    end
    if due > since then facts = facts + 16 end
    if attempts == 0 or tries < attempts then facts = facts + 64 end
    if flags % 2 == 1 then facts = facts + 128 end
    if flags % 4 >= 2 then facts = facts + 512 end
    if flags % 8 >= 4 or band(options, 64) ~= 0 then facts = facts + 1024 end
end
local verdict, move
RULES
local wait = verdict == 4 and due - since or 0
if move == 1 or move == 3 then -- start, take
    local lock = band(options, 16) ~= 0 and 1 or 0
    local was, label, tail, fingerprint = v, ARGV[3], '', sub(q, 17, 52)
    local prior, attempt, bind, status = string.rep('\0', 52), 0, '', '\0\0\0\0'
    local when = NOTHING
    if was then
        when = six(age + since)
        prior = sub(v, 9, 12) .. sub(v, 29, 64) .. six(left) .. when
        attempt = struct.unpack('>I4', v, 5)
        bind, status, tail = sub(v, 97, 96 + bound), sub(v, 89, 92), sub(v, rest + labels)
        flags = flags - flags % 2 - (flags % 16 >= 8 and 8 or 0)
        if label == '' or move == 3 then label = sub(v, rest, rest + labels - 1) end
        if move == 3 then fingerprint = sub(v, 29, 64) end
    end
    if move == 1 then tries = (state == 2 or state == 4) and tries + 1 or 1 end
    v = char(225, flags + lock, 2, state) .. four(attempt + 1) .. four(tries) .. mine .. fingerprint .. sub(q, 64, 69)
        .. sub(q, 58, 63) .. when .. NOTHING .. status .. two(#label) .. two(reasons) .. bind .. prior .. label .. tail
    state, rest, labels, left = 2, 97 + bound + 52, #label, ARGV[4] + 1
    call('SET', key, v, 'PX', ARGV[4])
elseif move == 2 then -- bury
    local reason = 'the last attempt vanished'
    flags = flags - (flags % 4 >= 2 and 2 or 0) - (flags % 8 >= 4 and 4 or 0) + 4
    v = char(225, flags, 4, 0) .. sub(v, 5, 12) .. string.rep('\0', 16) .. sub(v, 29, 64) .. sub(q, 70, 75) .. NOTHING
        .. six(age + since) .. NOTHING .. sub(v, 89, 94) .. two(#reason) .. sub(v, 97, 96 + bound)
        .. sub(v, rest, rest + labels - 1) .. reason
    left = ARGV[5] + 1
    call('SET', key, v, 'PX', ARGV[5])
    publish('PUBLISH_', key, '')
end
-- Only a replay and a permanent failure return the result.
if v and verdict ~= 2 and verdict ~= 7 then v = sub(v, 1, rest - 1 + labels + reasons) end
return {verdict, wait, v or '', left or 0}

--@ finish
-- ARGV[1]: action 1, options 2, attempt 3-6, owner 7-22, status 23-26, life 27-32, due 33-38, length of
-- the reason 39-40. ARGV[2]: reason, [3]: result, [4]: life for PX.
local band = bit.band
local q = ARGV[1]
local action, options = byte(q, 1, 2)
local facts = 0
if v then
    local released = flags % 16 >= 8
    local attempt = sub(q, 3, 6)
    if sub(v, 13, 28) == sub(q, 7, 22) and (attempt == sub(v, 5, 8) or attempt == '\0\0\0\0')
        and (not released or action == 2) then
        facts = 4
    end
    if flags % 2 == 1 and (from == 0 or from == 3) then facts = facts + 128 end
    local same = released
    if action ~= 2 then
        same = not released and state ~= 2 and sub(v, 89, 92) == sub(q, 23, 26)
            and (flags % 8 >= 4) == (options % 4 >= 2)
            and (action ~= 1 or sub(v, rest + labels, rest + labels + reasons - 1) == ARGV[2])
            and (flags % 4 < 2 or sub(v, rest + labels + reasons) == ARGV[3])
    end
    if same then facts = facts + 4096 end
end
local ack, move
RULES
if move == 0 then return ack end
local bind, label = sub(v, 97, 96 + bound), sub(v, rest, rest + labels - 1)
local middle, when = sub(v, 5, 64), six(age + since) -- middle: attempt, tries, owner, fingerprint
if move == 4 or move == 5 then -- done, fail
    local lock, final = flags % 2, move == 5 and options % 4 >= 2
    local kept = options % 2 == 1 and lock == 0
    v = char(225, lock + (kept and 2 or 0) + (final and 4 or 0) + bound / 2, move - 1, 0) .. middle .. sub(q, 27, 38) .. when
        .. NOTHING .. sub(q, 23, 26) .. sub(v, 93, 94) .. sub(q, 39, 40) .. bind .. label .. ARGV[2]
        .. (kept and ARGV[3] or '')
elseif move == 7 then -- free
    flags = flags - (flags % 16 >= 8 and 8 or 0) + 8
    v = char(225, flags, 3, 0) .. middle .. sub(q, 27, 32) .. NOTHING .. when .. NOTHING .. sub(v, 89, 96) .. bind .. label
        .. sub(v, rest + labels)
elseif move == 6 then -- restore
    local prior = sub(v, 97 + bound, 148 + bound)
    local pleft, page = struct.unpack('>I6I6', prior, 41)
    local new = pleft - (age + since - page)
    if from == 0 or new <= 0 then
        call('DEL', key)
        publish('PUBLISH_', key, '')
        return ack
    end
    flags = flags - flags % 2 + (from == 3 and 1 or 0) - (flags % 16 >= 8 and 8 or 0) + 8
    v = char(225, flags, from, from == 2 and 2 or 0) .. sub(v, 5, 8) .. sub(prior, 1, 4) .. sub(v, 13, 28)
        .. sub(prior, 5, 40) .. six(new) .. NOTHING .. when .. NOTHING .. sub(v, 89, 96) .. bind
        .. (from == 2 and prior or '') .. label .. sub(v, rest + labels)
    call('SET', key, v, 'PX', new > 1 and new - 1 or 1)
    publish('PUBLISH_', key, '')
    return ack
elseif move == 8 then -- end
    v = sub(v, 1, 64) .. sub(q, 27, 38) .. when .. NOTHING .. sub(v, 89, 94) .. sub(q, 39, 40) .. sub(v, 97, rest - 1)
        .. label .. ARGV[2] .. sub(v, rest + labels + reasons)
else -- extend
    v = sub(v, 1, 64) .. sub(q, 27, 38) .. when .. six(lag + since) .. sub(v, 89)
end
call('SET', key, v, 'PX', ARGV[4])
if move ~= 9 then publish('PUBLISH_', key, '') end
return ack

--@ issue
-- ARGV[1]: owner 1-16, life 17-22, length of the label 23-24. ARGV[2]: binding, [3]: label, [4]: life
-- for PX.
local q = ARGV[1]
if v then return (state == 1 and sub(v, 13, 28) == sub(q, 1, 16)) and 1 or 0 end
local function zeros(n) return string.rep('\0', n) end
call('SET', key, char(225, ARGV[2] ~= '' and 16 or 0, 1, 0) .. zeros(8) .. sub(q, 1, 16) .. zeros(36) .. sub(q, 17, 22)
    .. zeros(22) .. sub(q, 23, 24) .. zeros(2) .. ARGV[2] .. ARGV[3], 'PX', ARGV[4])
return 1

--@ settle
-- ARGV[1]: state 1, force 2, attempt 3-6, status 7-10, life 11-16, length of the reason 17-18, the state it must
-- have 19 (0: any).
-- ARGV[2]: reason, [3]: life for PX.
local q = ARGV[1]
if not v then return -10 end
if sub(q, 3, 6) ~= '\0\0\0\0' and sub(q, 3, 6) ~= sub(v, 5, 8) then return -11 end
if state == 2 and due > since and byte(q, 2) == 0 then return -11 end
if state == 3 or (byte(q, 19) ~= 0 and byte(q, 19) ~= state) then return -12 end
call('SET', key, char(225, flags % 2 + bound / 2, byte(q, 1), 0) .. sub(v, 5, 12) .. string.rep('\0', 16)
    .. sub(v, 29, 64) .. sub(q, 11, 16) .. NOTHING .. six(age + since) .. NOTHING .. sub(q, 7, 10) .. sub(v, 93, 94)
    .. sub(q, 17, 18) .. sub(v, 97, 96 + bound) .. sub(v, rest, rest + labels - 1) .. ARGV[2], 'PX', ARGV[3])
publish('PUBLISH_', key, '')
return 0

--@ forget
if not v then return -10 end
if state == 2 and due > since and ARGV[1] == '0' then return -11 end
call('DEL', key)
publish('PUBLISH_', key, '')
return 0

--@ look
local key, call = KEYS[1], redis.call
local t = call('TIME')
local v
if ARGV[1] == '' then v = call('GET', key) else v = call('GETRANGE', key, 0, ARGV[1]) end
return {v or '', call('PTTL', key) + 1, t[1] * 1000 + math.floor(t[2] / 1000), call('STRLEN', key)}

--@ count
local key, call = KEYS[1], redis.call
local how, value = ARGV[1], ARGV[2]
local was = call('GET', key) or '0'
if how == 'add' then
    local done = redis.pcall('INCRBY', key, value)
    if type(done) == 'table' then return string.find(done.err, 'overflow', 1, true) and {0, was} or done end
    call('PEXPIRE', key, ARGV[3])
    return {1, call('GET', key)}
end
-- Compares decimal numbers of up to 19 digits, which a double cannot hold: by sign, length and digits.
local function above(a, b)
    local an, bn = string.byte(a) == 45, string.byte(b) == 45
    if an ~= bn then return bn end
    if #a ~= #b then return (#a > #b) ~= an end
    return a ~= b and (a > b) ~= an
end
if how == 'raise' and not above(value, was) or how == 'next' and was ~= ARGV[4] then return {0, was} end
call('SET', key, value, 'PX', ARGV[3])
return {1, value}
