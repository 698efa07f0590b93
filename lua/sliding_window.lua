-- Twin of src/algorithm/sliding_window.rs, which documents the formulas.

local function sliding_tick(limit, count, window)
  local most = div(MAX, max(limit, count, 1))
  if window <= most then
    return 1
  end
  return div_ceil(window, most)
end

local function sliding_until(limit, window, count, previous, left, n)
  if n > limit then
    return -1
  end
  if count + n <= limit then
    local tick = sliding_tick(limit, previous, window)
    local fits = div((limit - count - n) * div(window, tick), previous)
    return left - fits * tick
  end
  local tick = sliding_tick(limit, count, window)
  local fits = div((limit - n) * div(window, tick), count)
  return left + window - fits * tick
end

local function sliding_window(slot, limit, window, hits, now)
  local start = now - mod(now, window)
  local count = 0
  local previous = 0
  local stored_start = A[slot]
  if stored_start then
    stored_start = stored_start - mod(stored_start, window)
    if stored_start >= start and stored_start <= now + window then
      start = stored_start
      count = B[slot]
      previous = C[slot]
    elseif stored_start + window == start then
      previous = B[slot]
    end
  end
  local wait = max(start - now, 0)
  local left = start + window - max(now, start)

  local tick = sliding_tick(limit, previous, window)
  local ticks = div(window, tick)
  local part = min(div_ceil(left, tick), ticks)
  local weighted = div_ceil(previous * part, ticks)

  local before = count
  local n = hits == 0 and 1 or max(hits, 0)
  local allowed
  if hits >= 0 then
    allowed = count + n <= limit and weighted <= limit - count - n
  else
    allowed = true
  end
  if hits > 0 and allowed then
    count = count + n
  elseif hits < 0 then
    count = max(count + hits, 0)
  end

  local remaining = max(max(limit - count, 0) - weighted, 0)
  local used = min(count + weighted, MAX)
  local reset = 0
  if count > 0 then
    reset = wait + left + window
  elseif previous > 0 then
    reset = wait + left
  end
  local retry = 0
  if not allowed then
    retry = sliding_until(limit, window, count, previous, left, n)
    if retry >= 0 then
      retry = wait + retry
    end
  end
  local next_after = -1
  if used > 0 then
    next_after = sliding_until(limit, window, count, previous, left, remaining + 1)
    if next_after >= 0 then
      next_after = wait + next_after
    end
  end
  if count ~= before then
    A[slot], B[slot], C[slot] = start, count, previous
    changed[slot] = wait + left + window + GRACE
  end
  return allowed, remaining, reset, retry, next_after, 0, used
end
