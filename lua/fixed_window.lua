-- Twin of src/algorithm/fixed_window.rs, which documents the formulas.

local function fixed_window(slot, limit, window, hits, now, counted)
  local start = now - mod(now, window)
  local count = 0
  local stored_start = A[slot]
  if stored_start then
    stored_start = stored_start - mod(stored_start, window)
    if stored_start >= start and stored_start <= now + window then
      start = stored_start
      count = B[slot]
    end
  end
  local reset = start + window - now

  local before = count
  local allowed
  if hits > 0 then
    allowed = count + hits <= limit
    if allowed or counted then
      count = count + hits
      if count > MAX then
        count = MAX
      end
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
  elseif hits <= limit and (limit > 0 or counted) then
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
  local remaining = limit - count
  if remaining < 0 then
    remaining = 0
  end
  return allowed, remaining, reset, retry, next_after, 0, count
end
