-- Twin of src/algorithm/sliding_window.rs, which documents the formulas and works out the answer as well.

local sliding_window
if named[SLIDING_WINDOW] then
  local function tick(limit, count, window)
    local most = limit
    if count > most then
      most = count
    end
    if most < 1 then
      most = 1
    end
    most = div(MAX, most)
    if window <= most then
      return 1
    end
    return div_ceil(window, most)
  end

  sliding_window = function(slot, limit, window, hits, times)
    local start = now - now % window
    local count = 0
    local previous = 0
    local stored_start = A[slot]
    if stored_start then
      stored_start = stored_start - stored_start % window
      if stored_start >= start and stored_start <= now + window then
        start = stored_start
        count = B[slot]
        previous = C[slot]
      elseif stored_start + window == start then
        previous = B[slot]
      end
    end

    local weighted = 0
    if previous > 0 and hits >= 0 then
      -- A clock that stepped back before the window's start stands at the start.
      local left = window
      if now > start then
        left = start + window - now
      end
      local tick = tick(limit, previous, window)
      local whole = div(window, tick)
      local part = div_ceil(left, tick)
      if part > whole then
        part = whole
      end
      weighted = div_ceil(previous * part, whole)
    end

    local before = count
    local admitted = times
    if hits >= 0 then
      local n = hits
      if n == 0 then
        n = 1
      end
      local room = limit - count - weighted
      admitted = 0
      if room >= n then
        admitted = div(room, n)
        if admitted > times then
          admitted = times
        end
      end
      count = count + hits * admitted
    else
      count = count + hits
      if count < 0 then
        count = 0
      end
    end

    if count ~= before then
      A[slot], B[slot], C[slot] = start, count, previous
      changed[slot] = start - now + window + window + GRACE
    end
    return admitted
  end
end
