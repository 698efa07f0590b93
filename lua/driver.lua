-- Decides a batch: any number of counters of any number of requests, at one instant. lua/README.md states the
-- arguments and the reply. The steps of a request are those of src/store/group.rs.

-- Microseconds that pinned calls add to an expiry: their clock stands still while Redis's own goes on.
local PINNED = 86400000000
local HEADER, RECORD = 8, 36
local REFUSED, ALLOWED, FOREIGN, BASED = 0, 1, 2, 3
local QUOTA, SHADOW = 1, 2
local FOREIGN_RECORD = pack('<Bdddddd', FOREIGN, 0, 0, -1, -1, 0, 0)

local arguments = ARGV[1]
local now = unpack_struct('<d', arguments)
local extra = 0
if now > 0 then
  extra = PINNED
else
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local total = #KEYS
-- The slot of each key, and the algorithm of each slot.
local by_name, kind = {}, {}
local slots, logs = 0, 0
for i = 1, total do
  local key = KEYS[i]
  if not by_name[key] then
    slots = slots + 1
    by_name[key] = slots
    name[slots] = key
    local letter = byte(arguments, HEADER + (i - 1) * RECORD + 1)
    kind[slots] = letter
    if letter == SLIDING_LOG then
      logs = logs + 1
    end
  end
end

local function decode(slot, value)
  local tag
  if kind[slot] == FIXED_WINDOW then
    if #value == 17 then
      tag, A[slot], B[slot] = unpack_struct('<Bdd', value)
    end
  elseif #value == 25 then
    tag, A[slot], B[slot], C[slot] = unpack_struct('<Bddd', value)
  end
  if tag ~= kind[slot] or not whole(A[slot]) or not whole(B[slot]) or (C[slot] and not whole(C[slot])) then
    foreign[slot] = true
  elseif (tag == TOKEN_BUCKET or tag == LEAKY_BUCKET) and C[slot] < 1 then
    foreign[slot] = true
  end
end

local function load_one(slot)
  local value = redis.pcall('GET', name[slot])
  if type(value) == 'string' then
    decode(slot, value)
  elseif value then
    foreign[slot] = true
  end
end

-- MGET is cheaper than a GET each, but says nothing of a key of another type: what it does not find has to be looked
-- at again, and mostly it is truly not there.
local function load_many(places, keys, from, to)
  local values = redis.call('MGET', unpack(keys, from, to))
  local missing, missing_keys = {}, {}
  for index = from, to do
    local value = values[index - from + 1]
    if value then
      decode(places[index], value)
    else
      missing[#missing + 1] = places[index]
      missing_keys[#missing_keys + 1] = keys[index]
    end
  end
  if #missing > 0 and redis.call('EXISTS', unpack(missing_keys)) > 0 then
    for index = 1, #missing do
      load_one(missing[index])
    end
  end
end

if slots == 1 and logs == 0 then
  load_one(1)
else
  local places, keys = {}, {}
  for slot = 1, slots do
    if kind[slot] == SLIDING_LOG then
      sliding_log_load(slot)
    else
      places[#places + 1] = slot
      keys[#keys + 1] = name[slot]
    end
  end
  for from = 1, #keys, 1000 do
    load_many(places, keys, from, min(from + 999, #keys))
  end
end

-- The quota's numbers are limit and window, or capacity (max_delay), tokens and period.
local function mend(slot, letter, q1, q2, q3)
  if letter == SLIDING_LOG then
    sliding_log_mend(slot, q2, now)
  elseif B[slot] and B[slot] > now then
    if letter == TOKEN_BUCKET then
      debt_mend(slot, q1 * q3, q2, q3, now)
    elseif letter == LEAKY_BUCKET then
      local _, full = leaky_bounds(q1, q2, q3)
      debt_mend(slot, full, q2, q3, now)
    end
  end
end

local function take(slot, letter, hits, q1, q2, q3, counted)
  if letter == TOKEN_BUCKET then
    return token_bucket(slot, q1, q2, q3, hits, now)
  elseif letter == FIXED_WINDOW then
    return fixed_window(slot, q1, q2, hits, now, counted)
  elseif letter == SLIDING_WINDOW then
    return sliding_window(slot, q1, q2, hits, now)
  elseif letter == SLIDING_LOG then
    return sliding_log(slot, q1, q2, hits, now)
  end
  return leaky_bucket(slot, q1, q2, q3, hits, now)
end

local reply = {}

local function decide(i, slot, letter, hits, q1, q2, q3, counted)
  local allowed, remaining, reset, retry, next_after, delay, used = take(slot, letter, hits, q1, q2, q3, counted)
  if allowed or letter == SLIDING_LOG or not A[slot] then
    reply[i] = pack('<Bdddddd', allowed and ALLOWED or REFUSED, remaining, reset, retry, next_after, delay, used)
  else
    reply[i] = pack('<Bdddddddddd', BASED, remaining, reset, retry, next_after, delay, used,
      A[slot], B[slot], C[slot] or 0, now)
  end
  return allowed
end

-- Decides the request that begins with counter first, and says which counter is its last.
local function all_or_nothing(first)
  local slot, letter, role, hits, q1, q2, q3 = {}, {}, {}, {}, {}, {}, {}
  local last = first
  local failed = false
  for i = first, total do
    local opens, _
    letter[i], role[i], _, opens, hits[i], q1[i], q2[i], q3[i] =
      unpack_struct('<BBBBdddd', arguments, HEADER + (i - 1) * RECORD + 1)
    if opens == 1 and i > first then
      break
    end
    last = i
    slot[i] = by_name[KEYS[i]]
    failed = failed or foreign[slot[i]] or kind[slot[i]] ~= letter[i]
  end

  local a, b, c, d, e = {}, {}, {}, {}, {}
  local allowed = {}
  local held, quotas, quotas_refused = false, 0, 0
  local saved = not failed
  if saved then
    for i = first, last do
      mend(slot[i], letter[i], q1[i], q2[i], q3[i])
    end
    for i = first, last do
      local s = slot[i]
      a[i], b[i], c[i], d[i], e[i] = A[s], B[s], C[s], D[s], changed[s]
    end
    for i = first, last do
      allowed[i] = decide(i, slot[i], letter[i], hits[i], q1[i], q2[i], q3[i], false)
      if role[i] == QUOTA then
        quotas = quotas + 1
        if not allowed[i] then
          quotas_refused = quotas_refused + 1
        end
      elseif role[i] ~= SHADOW and not allowed[i] then
        held = true
      end
      failed = failed or foreign[slot[i]]
    end
    held = held or (quotas > 0 and quotas == quotas_refused)
  end
  if not failed and not held then
    return last
  end

  if saved then
    for i = first, last do
      local s = slot[i]
      A[s], B[s], C[s], D[s], changed[s] = a[i], b[i], c[i], d[i], e[i]
    end
  end
  for i = first, last do
    if failed then
      reply[i] = FOREIGN_RECORD
    elseif role[i] == SHADOW then
      decide(i, slot[i], letter[i], hits[i], q1[i], q2[i], q3[i], false)
    elseif allowed[i] then
      local _, remaining, reset, _, next_after, delay, used =
        take(slot[i], letter[i], 0, q1[i], q2[i], q3[i], false)
      reply[i] = pack('<Bdddddd', ALLOWED, remaining, reset, 0, next_after, delay, used)
    end
  end
  return last
end

local i = 1
while i <= total do
  local letter, _, together, _, hits, q1, q2, q3 =
    unpack_struct('<BBBBdddd', arguments, HEADER + (i - 1) * RECORD + 1)
  if together == 1 then
    i = all_or_nothing(i)
  else
    local slot = by_name[KEYS[i]]
    if not foreign[slot] and kind[slot] == letter then
      mend(slot, letter, q1, q2, q3)
      decide(i, slot, letter, hits, q1, q2, q3, true)
    end
    if foreign[slot] or kind[slot] ~= letter then
      reply[i] = FOREIGN_RECORD
    end
  end
  i = i + 1
end

for slot = 1, slots do
  local expiry = changed[slot]
  if expiry and not foreign[slot] then
    expiry = max(div_ceil(expiry + extra, 1000), 1)
    local algorithm = kind[slot]
    if algorithm == SLIDING_LOG then
      sliding_log_save(slot, expiry)
    elseif algorithm == FIXED_WINDOW then
      redis.call('SET', name[slot], pack('<Bdd', algorithm, A[slot], B[slot]), 'PX', expiry)
    else
      redis.call('SET', name[slot], pack('<Bddd', algorithm, A[slot], B[slot], C[slot]), 'PX', expiry)
    end
  end
end

return table.concat(reply)
