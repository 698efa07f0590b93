-- Twin of src/algorithm/fixed_window.rs, which documents the formulas and works out the answer as well.

local fixed_window
if named[FIXED_WINDOW] then
  fixed_window = function(slot, limit, window, hits, times, counted)
    local start = now - now % window
    local count = 0
    local stored_start = A[slot]
    if stored_start then
      stored_start = stored_start - stored_start % window
      if stored_start >= start and stored_start <= now + window then
        start = stored_start
        count = B[slot]
      end
    end

    local before = count
    local admitted = times
    if hits > 0 then
      admitted = 0
      if count + hits <= limit then
        admitted = div(limit - count, hits)
        if admitted > times then
          admitted = times
        end
      end
      if counted then
        count = count + hits * times
        if count > MAX then
          count = MAX
        end
      else
        count = count + hits * admitted
      end
    elseif hits == 0 then
      if count > limit or count == limit and not counted then
        admitted = 0
      end
    else
      count = count + hits
      if count < 0 then
        count = 0
      end
    end

    if count ~= before then
      A[slot], B[slot] = start, count
      changed[slot] = start + window - now + GRACE
    end
    return admitted
  end
end
