-- Twin of src/algorithm/fixed_window.rs, which documents the formulas.

local function fixed_window(slot, limit, window, hits, now, counted)
  local start = now - fmod(now, window)
  local count = 0
  local stored_start = A[slot]
  if stored_start then
    stored_start = stored_start - fmod(stored_start, window)
    if stored_start >= start and stored_start <= now + window then
      start = stored_start
      count = B[slot]
    end
  end
  local reset = start + window - now

  local before = count
  local n = max(hits, 0)
  local allowed
  if hits > 0 then
    allowed = count + n <= limit
    if allowed or counted then
      count = min(count + n, MAX)
    end
  elseif hits == 0 then
    if counted then
      allowed = count <= limit
    else
      allowed = count < limit
    end
  else
    count = max(count + hits, 0)
    allowed = true
  end

  local retry = -1
  if allowed then
    retry = 0
  elseif n <= limit and (limit > 0 or counted) then
    retry = reset
  end
  local next_after = -1
  if count > 0 and limit > 0 then
    next_after = reset
  end
  if count ~= before then
    A[slot], B[slot] = start, count
    changed[slot] = reset + GRACE
  end
  return allowed, max(limit - count, 0), reset, retry, next_after, 0, count
end
