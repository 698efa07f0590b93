-- Decides a batch: any number of counters of any number of requests, at one instant, and says what it found. README.md
-- states the arguments and the reply. The steps of a request are those of src/store/group.rs.

local QUOTA_BUCKET, SHADOW = 1, 2
-- How a record is to be decided.
local COUNTED, TOGETHER = 0, 2

-- The values of the keys, false for none. The last keys are those of logs.
local slots = #keys
local strings = slots - logs
local values = {}

local function value_of(slot)
  local value = redis.pcall('GET', keys[slot])
  if type(value) == 'table' then
    letters[slot] = FOREIGN
    return false
  end
  return value
end

if strings == 1 then
  values[1] = value_of(1)
elseif strings > 0 then
  -- MGET is cheaper than a GET each, but says nothing of a key of another type: what it does not find has to be looked
  -- at again, and mostly it is truly not there.
  for from = 1, strings, 1000 do
    local to = from + 999
    if to > strings then
      to = strings
    end
    local some = call('MGET', unpack(keys, from, to))
    if strings <= 1000 then
      values = some
    else
      for slot = from, to do
        values[slot] = some[slot - from + 1]
      end
    end
    local missing = {}
    for slot = from, to do
      if not values[slot] then
        missing[#missing + 1] = keys[slot]
      end
    end
    if #missing > 0 and call('EXISTS', unpack(missing)) > 0 then
      for slot = from, to do
        values[slot] = values[slot] or value_of(slot)
      end
    end
  end
end

-- Brings back a state that is far ahead of now.
local function mend(slot, letter, quota)
  if letter == SLIDING_LOG then
    sliding_log_mend(slot, q2[quota])
  elseif B[slot] and B[slot] > now then
    if letter == TOKEN_BUCKET then
      debt_mend(slot, q1[quota] * q3[quota], q2[quota], q3[quota])
    elseif letter == LEAKY_BUCKET then
      local _, full = leaky_bounds(q1[quota], q2[quota], q3[quota])
      debt_mend(slot, full, q2[quota], q3[quota])
    end
  end
end

-- How many of the given times the hits are allowed.
local function take(slot, letter, quota, hits, times, counted)
  if letter == TOKEN_BUCKET then
    return token_bucket(slot, q1[quota], q2[quota], q3[quota], hits, times)
  elseif letter == FIXED_WINDOW then
    return fixed_window(slot, q1[quota], q2[quota], hits, times, counted)
  elseif letter == SLIDING_WINDOW then
    return sliding_window(slot, q1[quota], q2[quota], hits, times)
  elseif letter == LEAKY_BUCKET then
    return leaky_bucket(slot, q1[quota], q2[quota], q3[quota], hits, times)
  end
  return sliding_log(slot, q1[quota], q2[quota], hits, times)
end

-- Does the slot's key hold what the letter says, or nothing?
local function is_own(slot, letter)
  local found = letters[slot]
  if not found then
    letters[slot] = letter
    return true
  end
  if found ~= letter then
    letters[slot] = FOREIGN
    return false
  end
  return true
end

local all_or_nothing
if groups > 0 then
  -- Of the request that is decided all or nothing.
  local slot, letter, quota, role, hits, allowed = {}, {}, {}, {}, {}, {}
  -- What its slots held before.
  local a, b, c, d, e = {}, {}, {}, {}, {}

  -- Decides the request of so many counters, the first of which has its record at `at`.
  all_or_nothing = function(at, total)
    local own = true
    for i = 1, total do
      local _
      _, role[i], slot[i], quota[i], _, hits[i] =
        unpack_struct('<BBI4I4I4d', arguments, at + (i - 1) * RECORD)
      letter[i] = algorithm[quota[i]]
      own = is_own(slot[i], letter[i]) and own
    end
    if not own then
      return
    end

    for i = 1, total do
      mend(slot[i], letter[i], quota[i])
    end
    for i = 1, total do
      local s = slot[i]
      a[i], b[i], c[i], d[i], e[i] = A[s], B[s], C[s], D[s], changed[s]
    end

    local held, quotas, quotas_refused = false, 0, 0
    for i = 1, total do
      allowed[i] = take(slot[i], letter[i], quota[i], hits[i], 1, false) > 0
      if role[i] == QUOTA_BUCKET then
        quotas = quotas + 1
        if not allowed[i] then
          quotas_refused = quotas_refused + 1
        end
      elseif role[i] ~= SHADOW and not allowed[i] then
        held = true
      end
    end
    if not held and (quotas == 0 or quotas > quotas_refused) then
      return
    end

    for i = 1, total do
      local s = slot[i]
      A[s], B[s], C[s], D[s], changed[s] = a[i], b[i], c[i], d[i], e[i]
    end
    for i = 1, total do
      if role[i] == SHADOW then
        take(slot[i], letter[i], quota[i], hits[i], 1, false)
      elseif allowed[i] then
        take(slot[i], letter[i], quota[i], 0, 1, false)
      end
    end
  end
end

repeat
  spoilt = false
  for slot = 1, strings do
    local value = values[slot]
    if value then
      local length = #value
      local tag, a, b, c = FOREIGN, 0, 0, 1
      if length == 25 then
        tag, a, b, c = unpack_struct('<Bddd', value)
      elseif length == 17 then
        tag, a, b = unpack_struct('<Bdd', value)
      end
      -- No number passes that is not whole: what is none, or has no end, leaves no rest of 0.
      if a % 1 + b % 1 + c % 1 == 0 and a >= 0 and a <= MAX and b >= 0 and b <= MAX and c >= 0 and c <= MAX
        and (length == 17) == (tag == FIXED_WINDOW)
        and (c > 0 or tag == SLIDING_WINDOW) then
        letters[slot], A[slot], B[slot], C[slot] = tag, a, b, c
      else
        letters[slot] = FOREIGN
      end
    end
  end
  for slot = strings + 1, slots do
    sliding_log_load(slot)
  end

  local at = HEADER + quotas * QUOTA + 1
  local last = #arguments
  while at < last do
    local how, _, slot, quota, times, hits = unpack_struct('<BBI4I4I4d', arguments, at)
    if how == TOGETHER then
      all_or_nothing(at, times)
      at = at + times * RECORD
    else
      local letter = algorithm[quota]
      if is_own(slot, letter) then
        mend(slot, letter, quota)
        take(slot, letter, quota, hits, times, how == COUNTED)
      end
      at = at + RECORD
    end
  end

  if spoilt then
    -- A list turned out to be no log after its counters were decided: once more, without it. Nothing is written yet.
    A, B, C, D, changed = {}, {}, {}, {}, {}
  end
until not spoilt

for slot = 1, slots do
  local letter, expiry = letters[slot], changed[slot]
  if letter == FOREIGN then
    values[slot] = '!'
  elseif slot > strings then
    values[slot] = sliding_log_read(slot)
  elseif not values[slot] then
    values[slot] = '-'
  end
  if expiry and letter ~= FOREIGN then
    expiry = div_ceil(expiry + extra, 1000)
    if expiry < 1 then
      expiry = 1
    end
    if letter == SLIDING_LOG then
      sliding_log_save(slot, expiry)
    elseif letter == FIXED_WINDOW then
      call('SET', keys[slot], pack('<Bdd', letter, A[slot], B[slot]), 'PX', expiry)
    else
      call('SET', keys[slot], pack('<Bddd', letter, A[slot], B[slot], C[slot]), 'PX', expiry)
    end
  end
end

values[slots + 1] = pack('<d', now)
return table.concat(values)
