-- Twin of src/algorithm/token_bucket.rs, which documents the formulas.

local function token_bucket(slot, capacity, tokens, period, hits, now)
  local full = capacity * period
  local amount, at, wait = debt_settle(slot, full, tokens, period, now)

  local before = amount
  local n = hits
  if n == 0 then
    n = 1
  end
  local allowed = hits < 0 or n <= capacity and amount <= full - n * period
  if hits > 0 and allowed then
    amount = amount + n * period
  elseif hits < 0 then
    amount, wait = debt_give_back(amount, wait, -hits, period)
  end

  local used = div_ceil(amount, period)
  local remaining = capacity - used
  local reset = debt_reset(amount, wait, tokens)
  local retry = 0
  if not allowed then
    retry = -1
    if n <= capacity then
      retry = wait + div_ceil(amount - (full - n * period), tokens)
    end
  end
  local next_after = -1
  if used > 0 then
    next_after = wait + div_ceil(amount - (full - (remaining + 1) * period), tokens)
  end
  if amount ~= before then
    A[slot], B[slot], C[slot] = amount, at, period
    changed[slot] = reset
  end
  return allowed, remaining, reset, retry, next_after, 0, used
end
