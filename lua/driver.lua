-- Decides a batch: any number of counters of any number of requests, at one instant. lua/README.md states the
-- arguments and the reply. The steps of a request are those of src/store/group.rs.

-- Microseconds that pinned calls add to an expiry: their clock stands still while Redis's own goes on.
local PINNED = 86400000000
local HEADER, RECORD = 8, 36
local REFUSED, ALLOWED, FOREIGN = 0, 1, 2
local SHADOW, QUOTA = 2, 1
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
local letter, role, together, opens, hits = {}, {}, {}, {}, {}
-- The quota's numbers: limit and window, or capacity (max_delay), tokens and period.
local q1, q2, q3 = {}, {}, {}
-- Which slot each counter is in, and what each slot is.
local slot_of, kind = {}, {}
local slots = 0
local strings, logs = {}, {}

local by_name = {}
for i = 1, total do
  letter[i], role[i], together[i], opens[i], hits[i], q1[i], q2[i], q3[i] =
    unpack_struct('<BBBBdddd', arguments, HEADER + (i - 1) * RECORD + 1)
  local key = KEYS[i]
  local slot = by_name[key]
  if not slot then
    slots = slots + 1
    slot = slots
    by_name[key] = slot
    name[slot] = key
    kind[slot] = letter[i]
    if letter[i] == SLIDING_LOG then
      logs[#logs + 1] = slot
    else
      strings[#strings + 1] = slot
    end
  end
  slot_of[i] = slot
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
local function load_strings(from, to)
  local keys = {}
  for index = from, to do
    keys[#keys + 1] = name[strings[index]]
  end
  local values = redis.call('MGET', unpack(keys))
  local missing, missing_keys = {}, {}
  for index = 1, #keys do
    local slot = strings[from + index - 1]
    if values[index] then
      decode(slot, values[index])
    else
      missing[#missing + 1] = slot
      missing_keys[#missing_keys + 1] = keys[index]
    end
  end
  if #missing > 0 and redis.call('EXISTS', unpack(missing_keys)) > 0 then
    for index = 1, #missing do
      load_one(missing[index])
    end
  end
end

if #strings == 1 then
  load_one(strings[1])
else
  for from = 1, #strings, 1000 do
    load_strings(from, min(from + 999, #strings))
  end
end
for index = 1, #logs do
  sliding_log_load(logs[index])
end

local function mend(i)
  local slot = slot_of[i]
  local algorithm = letter[i]
  if algorithm == TOKEN_BUCKET then
    debt_mend(slot, q1[i] * q3[i], q2[i], q3[i], now)
  elseif algorithm == LEAKY_BUCKET then
    local _, full = leaky_bounds(q1[i], q2[i], q3[i])
    debt_mend(slot, full, q2[i], q3[i], now)
  elseif algorithm == SLIDING_LOG then
    sliding_log_mend(slot, q2[i], now)
  end
end

local function take(i, n, counted)
  local slot = slot_of[i]
  local algorithm = letter[i]
  if algorithm == TOKEN_BUCKET then
    return token_bucket(slot, q1[i], q2[i], q3[i], n, now)
  elseif algorithm == FIXED_WINDOW then
    return fixed_window(slot, q1[i], q2[i], n, now, counted)
  elseif algorithm == SLIDING_WINDOW then
    return sliding_window(slot, q1[i], q2[i], n, now)
  elseif algorithm == SLIDING_LOG then
    return sliding_log(slot, q1[i], q2[i], n, now)
  end
  return leaky_bucket(slot, q1[i], q2[i], q3[i], n, now)
end

local reply = {}

local function decide(i, counted)
  local allowed, remaining, reset, retry, next_after, delay, used = take(i, hits[i], counted)
  reply[i] = pack('<Bdddddd', allowed and ALLOWED or REFUSED, remaining, reset, retry, next_after, delay, used)
  return allowed
end

local function look(i)
  local _, remaining, reset, _, next_after, delay, used = take(i, 0, false)
  reply[i] = pack('<Bdddddd', ALLOWED, remaining, reset, 0, next_after, delay, used)
end

-- True when the key of counter i holds no state of its algorithm.
local function is_foreign(i)
  local slot = slot_of[i]
  return foreign[slot] or kind[slot] ~= letter[i]
end

local function any_foreign(first, last)
  for i = first, last do
    if is_foreign(i) then
      return true
    end
  end
  return false
end

local function all_or_nothing(first, last)
  local a, b, c, d, e = {}, {}, {}, {}, {}
  local function restore()
    for i = first, last do
      local slot = slot_of[i]
      A[slot], B[slot], C[slot], D[slot], changed[slot] = a[i], b[i], c[i], d[i], e[i]
    end
  end
  local function fail()
    for i = first, last do
      reply[i] = FOREIGN_RECORD
    end
  end

  if any_foreign(first, last) then
    return fail()
  end
  for i = first, last do
    mend(i)
  end
  for i = first, last do
    local slot = slot_of[i]
    a[i], b[i], c[i], d[i], e[i] = A[slot], B[slot], C[slot], D[slot], changed[slot]
  end

  local allowed = {}
  local held, quotas, quotas_refused = false, 0, 0
  for i = first, last do
    allowed[i] = decide(i, false)
    if role[i] == QUOTA then
      quotas = quotas + 1
      if not allowed[i] then
        quotas_refused = quotas_refused + 1
      end
    elseif role[i] ~= SHADOW and not allowed[i] then
      held = true
    end
  end
  if any_foreign(first, last) then
    restore()
    return fail()
  end
  if not held and (quotas == 0 or quotas_refused < quotas) then
    return
  end

  restore()
  for i = first, last do
    if role[i] == SHADOW then
      decide(i, false)
    elseif allowed[i] then
      look(i)
    end
  end
end

local function per_counter(first, last)
  for i = first, last do
    if not is_foreign(i) then
      mend(i)
      decide(i, true)
    end
    if is_foreign(i) then
      reply[i] = FOREIGN_RECORD
    end
  end
end

local first = 1
while first <= total do
  local last = first
  while last < total and opens[last + 1] == 0 do
    last = last + 1
  end
  if together[first] == 1 then
    all_or_nothing(first, last)
  else
    per_counter(first, last)
  end
  first = last + 1
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
