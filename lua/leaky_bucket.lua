-- Twin of src/algorithm/leaky_bucket.rs, which documents the formulas.

local function leaky_bounds(max_delay, tokens, period)
  local capacity = div(max_delay * tokens, period) + 1
  return capacity, max_delay * tokens + capacity * period
end

local function leaky_bucket(slot, max_delay, tokens, period, hits, now)
  local capacity, full = leaky_bounds(max_delay, tokens, period)
  local amount, at, wait = debt_settle(slot, full, tokens, period, now)

  local before = amount
  local n = max(hits, 0)
  local delay = debt_reset(amount, wait, tokens)
  local allowed = hits < 0 or n <= capacity and delay <= max_delay
  if hits > 0 and allowed then
    amount = amount + n * period
  elseif hits < 0 then
    amount, wait = debt_give_back(amount, wait, -hits, period)
  end

  local used = div_ceil(amount, period)
  local reset = debt_reset(amount, wait, tokens)
  local remaining = 0
  if reset <= max_delay then
    remaining = div((max_delay - wait) * tokens - amount, period) + 1
  end
  local retry = 0
  if not allowed then
    retry = -1
    if n <= capacity then
      retry = delay - max_delay
    end
  end
  local next_after = -1
  -- With a max_delay between two slots all slots may be free while something is still owed.
  if used > 0 and remaining < capacity then
    next_after = wait + div_ceil(amount + remaining * period, tokens) - max_delay
  end
  if not allowed or hits < 0 then
    delay = 0
  end
  if amount ~= before then
    A[slot], B[slot], C[slot] = amount, at, period
    changed[slot] = reset
  end
  return allowed, remaining, reset, retry, next_after, delay, used
end
