-- Twin of src/algorithm/sliding_log.rs, which documents the formulas. The log is a list, oldest entry first; what a
-- call does to it is gathered in A, B, C, D and written once.

-- Entries of the stored list that were read, by slot and index.
local seen = {}

local function log_at(slot, index)
  local at = seen[slot][index]
  if not at then
    local text = redis.call('LINDEX', name[slot], index)
    at = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
    if not at or at > MAX then
      foreign[slot] = true
      at = 0
    end
    seen[slot][index] = at
  end
  return at
end

-- The first index in [from, to) of an entry later than bound.
local function log_after(slot, from, to, bound)
  if from >= to or log_at(slot, from) > bound then
    return from
  end
  if log_at(slot, to - 1) <= bound then
    return to
  end
  local low, high = from + 1, to - 1
  while low < high do
    local middle = low + div(high - low, 2)
    if log_at(slot, middle) > bound then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function sliding_log_mend(slot, window, now)
  local first, last = A[slot], B[slot]
  if last == first or log_at(slot, last - 1) <= now + window then
    return
  end
  last = log_after(slot, first, last, now + window)
  B[slot] = last
  changed[slot] = 0
  if last > first then
    changed[slot] = max(log_at(slot, last - 1) + window - now, 0)
  end
end

local function sliding_log(slot, limit, window, hits, now)
  local expired = log_after(slot, A[slot], B[slot], now - window)
  local newest = 0
  if C[slot] > 0 then
    newest = D[slot]
  elseif B[slot] > A[slot] then
    newest = log_at(slot, B[slot] - 1)
  end
  local at = max(now, newest)
  local sum = B[slot] - expired + C[slot]

  local before = sum
  local n = hits == 0 and 1 or max(hits, 0)
  local allowed = hits < 0 or sum + n <= limit
  if hits > 0 and allowed then
    C[slot], D[slot] = C[slot] + n, at
    sum = sum + n
    newest = at
  elseif hits < 0 then
    local pop = min(-hits, sum)
    sum = sum - pop
    local appended = min(pop, C[slot])
    C[slot] = C[slot] - appended
    B[slot] = B[slot] - (pop - appended)
    if sum > 0 and C[slot] == 0 then
      newest = log_at(slot, B[slot] - 1)
    end
  end

  -- Those of the stored list come before the appended ones.
  local function entry_after(j)
    local index = expired + j
    if index < B[slot] then
      return log_at(slot, index) + window - now
    end
    return D[slot] + window - now
  end
  local remaining = max(limit - sum, 0)
  local reset = 0
  if sum > 0 then
    reset = newest + window - now
  end
  local retry = 0
  if not allowed then
    retry = -1
    if n <= limit then
      retry = entry_after(sum + n - limit - 1)
    end
  end
  local next_after = -1
  if sum > 0 and remaining + 1 <= limit then
    next_after = entry_after(sum + remaining - limit)
  end
  if sum ~= before then
    A[slot] = expired
    changed[slot] = reset
  end
  return allowed, remaining, reset, retry, next_after, 0, sum
end

local function sliding_log_load(slot)
  local length = redis.pcall('LLEN', name[slot])
  if type(length) ~= 'number' or length > 10000 then
    foreign[slot] = true
    length = 0
  end
  seen[slot] = {}
  A[slot], B[slot], C[slot], D[slot] = 0, length, 0, 0
  if length > 0 then
    log_at(slot, 0)
    log_at(slot, length - 1)
  end
end

local function sliding_log_save(slot, expiry)
  local key = name[slot]
  if A[slot] == B[slot] then
    redis.call('DEL', key)
  else
    redis.call('LTRIM', key, A[slot], B[slot] - 1)
  end
  local left = C[slot]
  if left == 0 and A[slot] == B[slot] then
    return
  end
  local text = string.format('%.0f', D[slot])
  local entries = {}
  -- unpack has a bound, and so has the number of arguments.
  for index = 1, min(left, 1000) do
    entries[index] = text
  end
  while left > 0 do
    local some = min(left, 1000)
    redis.call('RPUSH', key, unpack(entries, 1, some))
    left = left - some
  end
  redis.call('PEXPIRE', key, expiry)
end
