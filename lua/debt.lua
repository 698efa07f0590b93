-- Twin of src/algorithm/debt.rs, which documents the formulas.

local function debt_convert(amount, from, full, to)
  local tokens = div(amount, from)
  local part = mod(amount, from)
  local unit = from
  local most = div(MAX, to)
  while part > most do
    part = div_ceil(part, 2)
    unit = max(div(unit, 2), 1)
  end
  part = min(div_ceil(part * to, unit), to)
  if tokens > div(full, to) or part > full - tokens * to then
    return full
  end
  return tokens * to + part
end

-- The debt at now, the time it is right for, and how far that is ahead of now.
local function debt_settle(slot, full, tokens, period, now)
  local amount = A[slot]
  if not amount then
    return 0, now, 0
  end
  local at = B[slot]
  if C[slot] ~= period then
    amount = debt_convert(amount, C[slot], full, period)
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

local function debt_reset(amount, wait, tokens)
  if amount == 0 then
    return 0
  end
  return wait + div_ceil(amount, tokens)
end

local function debt_give_back(amount, wait, given, period)
  if given >= div_ceil(amount, period) then
    return 0, 0
  end
  return amount - given * period, wait
end

local function debt_mend(slot, full, tokens, period, now)
  if not A[slot] or B[slot] <= now + div_ceil(full, tokens) then
    return
  end
  B[slot] = now
  local amount, _, wait = debt_settle(slot, full, tokens, period, now)
  changed[slot] = debt_reset(amount, wait, tokens)
end
