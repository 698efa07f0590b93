-- Twin of src/algorithm/token_bucket.rs, which documents the formulas and works out the answer as well.

local token_bucket
if named[TOKEN_BUCKET] then
  token_bucket = function(slot, capacity, tokens, period, hits, times)
    local full = capacity * period
    local amount, at, wait = debt_settle(slot, full, tokens, period)

    local before = amount
    local admitted = times
    if hits >= 0 then
      local n = hits
      if n == 0 then
        n = 1
      end
      admitted = 0
      if n <= capacity then
        admitted = div(full - amount, n * period)
        if admitted > times then
          admitted = times
        end
        amount = amount + admitted * hits * period
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
