-- What all algorithms share. Numbers are doubles: everything here stays a whole number of at most 2^53 - 1.

local MAX = 9007199254740991
-- Microseconds a window's state outlives the window.
local GRACE = 1000000

-- Letters of the algorithms: in the arguments, and the first byte of a state.
local FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, TOKEN_BUCKET, LEAKY_BUCKET = 102, 115, 108, 116, 113

local fmod, floor, min, max = math.fmod, math.floor, math.min, math.max
local pack, unpack_struct = struct.pack, struct.unpack

-- The states this call works on, by slot (one for each distinct key): up to four numbers, nil for no state.
--   fixed_window    A start, B count
--   sliding_window  A start, B count, C previous
--   buckets         A amount, B at, C period
--   sliding_log     A first, B behind the last entry that is kept of the stored list, C entries to append, D their time
local A, B, C, D = {}, {}, {}, {}
-- Microseconds after which a changed state can be forgotten, nil while it is as it was.
local changed = {}
-- Slots whose key holds something that is no state.
local foreign = {}
-- The key of each slot.
local name = {}

-- floor(a / b). A plain a / b is rounded to the nearest double, fmod is exact.
local function div(a, b)
  return (a - fmod(a, b)) / b
end

local function div_ceil(a, b)
  local rest = fmod(a, b)
  if rest > 0 then
    return (a - rest) / b + 1
  end
  return a / b
end

local function whole(x)
  return x >= 0 and x <= MAX and floor(x) == x
end
