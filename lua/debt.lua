-- Twin of src/algorithm/debt.rs, which documents the formulas.

local debt_settle, debt_give_back, debt_mend
if named[TOKEN_BUCKET] or named[LEAKY_BUCKET] then
  local function convert(amount, from, full, to)
    local tokens = div(amount, from)
    local part = amount % from
    local unit = from
    local most = div(MAX, to)
    while part > most do
      part = div_ceil(part, 2)
      unit = div(unit, 2)
      if unit < 1 then
        unit = 1
      end
    end
    part = div_ceil(part * to, unit)
    if part > to then
      part = to
    end
    if tokens > div(full, to) or part > full - tokens * to then
      return full
    end
    return tokens * to + part
  end

  -- The debt at now, the time it is right for, and how far that is ahead of now.
  debt_settle = function(slot, full, tokens, period)
    local amount = A[slot]
    if not amount then
      return 0, now, 0
    end
    local at = B[slot]
    if C[slot] ~= period then
      amount = convert(amount, C[slot], full, period)
    elseif amount > full then
      amount = full
    end
    if now > at then
      -- Where the product is too large to be exact it is larger than any debt.
      amount = amount - (now - at) * tokens
      at = now
    end
    if amount <= 0 then
      return 0, now, 0
    end
    return amount, at, at - now
  end

  debt_give_back = function(amount, wait, given, period)
    if given >= div_ceil(amount, period) then
      return 0, 0
    end
    return amount - given * period, wait
  end

  debt_mend = function(slot, full, tokens, period)
    if B[slot] <= now + div_ceil(full, tokens) then
      return
    end
    B[slot] = now
    changed[slot] = div_ceil(debt_settle(slot, full, tokens, period), tokens)
  end
end
