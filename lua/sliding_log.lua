-- Twin of src/algorithm/sliding_log.rs, which documents the formulas and works out the answer as well. The log is a
-- list, oldest entry first; what a call does to it is gathered in A, B, C, D and written once. The answer needs a few
-- entries: those that were read go into the reply, and what the twin looks at is read here.

local sliding_log, sliding_log_mend, sliding_log_load, sliding_log_read, sliding_log_save
-- A list had something in it that is no time.
local spoilt = false
if named[SLIDING_LOG] then
  -- Entries of the stored list that were read, by slot and index; and its length.
  local seen, length = {}, {}

  local function log_at(slot, index)
    local at = seen[slot][index]
    if not at then
      local text = call('LINDEX', keys[slot], index)
      at = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
      if not at or at > MAX then
        letters[slot] = FOREIGN
        spoilt = true
        at = 0
      end
      seen[slot][index] = at
    end
    return at
  end

  -- The first index in [from, to) of an entry later than bound. The two entries on either side of it are then read.
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

  sliding_log_mend = function(slot, window)
    local first, last = A[slot], B[slot]
    if last == first or log_at(slot, last - 1) <= now + window then
      return
    end
    last = log_after(slot, first, last, now + window)
    B[slot] = last
    changed[slot] = 0
    if last > first then
      changed[slot] = math.max(log_at(slot, last - 1) + window - now, 0)
    end
  end

  sliding_log = function(slot, limit, window, hits, times)
    local expired = log_after(slot, A[slot], B[slot], now - window)
    local newest = 0
    if C[slot] > 0 then
      newest = D[slot]
    elseif B[slot] > A[slot] then
      newest = log_at(slot, B[slot] - 1)
    end
    local at = newest
    if now > newest then
      at = now
    end
    local sum = B[slot] - expired + C[slot]

    local before = sum
    local n = hits
    if n == 0 then
      n = 1
    end
    local admitted = times
    if hits >= 0 then
      admitted = 0
      if sum + n <= limit then
        admitted = div(limit - sum, n)
        if admitted > times then
          admitted = times
        end
      end
      if hits > 0 and admitted > 0 then
        C[slot], D[slot] = C[slot] + hits * admitted, at
        sum = sum + hits * admitted
        newest = at
      end
    else
      local pop = -hits
      if pop > sum then
        pop = sum
      end
      sum = sum - pop
      local appended = pop
      if appended > C[slot] then
        appended = C[slot]
      end
      C[slot] = C[slot] - appended
      B[slot] = B[slot] - (pop - appended)
      if sum > 0 and C[slot] == 0 then
        newest = log_at(slot, B[slot] - 1)
      end
    end

    -- The entry whose end gives room for n more, which a refusal names, and the one that gives room for one more.
    local stored = B[slot] - expired
    if admitted < times and n <= limit and sum + n - limit - 1 < stored then
      log_at(slot, expired + sum + n - limit - 1)
    end
    if sum > limit and sum - limit < stored then
      log_at(slot, expired + sum - limit)
    end
    if sum ~= before then
      A[slot] = expired
      changed[slot] = newest + window - now
      if sum == 0 then
        changed[slot] = 0
      end
    end
    return admitted
  end

  -- Fills the slot from its key.
  sliding_log_load = function(slot)
    if not seen[slot] then
      local found = redis.pcall('LLEN', keys[slot])
      if type(found) ~= 'number' or found > 10000 then
        letters[slot] = FOREIGN
        found = 0
      end
      seen[slot], length[slot] = {}, found
    end
    local last = length[slot]
    A[slot], B[slot], C[slot], D[slot] = 0, last, 0, 0
    if last > 0 then
      log_at(slot, 0)
      log_at(slot, last - 1)
    end
  end

  -- What the reply says of it.
  sliding_log_read = function(slot)
    if length[slot] == 0 then
      return '-'
    end
    local entries = {}
    for index, at in pairs(seen[slot]) do
      entries[#entries + 1] = pack('<dd', index, at)
    end
    return pack('<BI4I4', SLIDING_LOG, length[slot], #entries) .. table.concat(entries)
  end

  sliding_log_save = function(slot, expiry)
    local key = keys[slot]
    if A[slot] == B[slot] then
      if length[slot] > 0 then
        call('DEL', key)
      end
    elseif A[slot] > 0 or B[slot] < length[slot] then
      call('LTRIM', key, A[slot], B[slot] - 1)
    end
    local left = C[slot]
    if left == 0 and A[slot] == B[slot] then
      return
    end
    local text = string.format('%.0f', D[slot])
    local entries = {}
    -- unpack has a bound, and so has the number of arguments.
    for index = 1, math.min(left, 1000) do
      entries[index] = text
    end
    while left > 0 do
      local some = math.min(left, 1000)
      call('RPUSH', key, unpack(entries, 1, some))
      left = left - some
    end
    call('PEXPIRE', key, expiry)
  end
end
