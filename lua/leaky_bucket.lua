-- Twin of src/algorithm/leaky_bucket.rs, which documents the formulas and works out the answer as well.

local leaky_bounds, leaky_bucket
if named[LEAKY_BUCKET] then
  leaky_bounds = function(max_delay, tokens, period)
    local capacity = div(max_delay * tokens, period) + 1
    return capacity, max_delay * tokens + capacity * period
  end

  leaky_bucket = function(slot, max_delay, tokens, period, hits, times)
    local capacity, full = leaky_bounds(max_delay, tokens, period)
    local amount, at, wait = debt_settle(slot, full, tokens, period)

    local before = amount
    local admitted = times
    if hits >= 0 then
      -- What may be owed before a hit that is not delayed too long.
      local most = (max_delay - wait) * tokens
      admitted = 0
      if amount <= most and hits <= capacity then
        if hits == 0 then
          admitted = times
        else
          admitted = div(most - amount, hits * period) + 1
          if admitted > times then
            admitted = times
          end
          amount = amount + admitted * hits * period
        end
      end
    else
      amount, wait = debt_give_back(amount, wait, -hits, period)
    end

    if amount ~= before then
      A[slot], B[slot], C[slot] = amount, at, period
      changed[slot] = wait + div_ceil(amount, tokens)
    end
    return admitted
  end
end
