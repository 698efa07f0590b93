-- What all algorithms share. Numbers are doubles: everything here stays a whole number of at most 2^53 - 1.
--
-- Every call runs all of this text, so that what a call does not need is not made: each algorithm's functions are made
-- only if a quota names it.

local MAX = 9007199254740991
-- Microseconds a window's state outlives the window.
local GRACE = 1000000

-- Letters of the algorithms: in the arguments, and the first byte of a state.
local FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, TOKEN_BUCKET, LEAKY_BUCKET = 102, 115, 108, 116, 113
-- The letter of a key that holds something that is no state.
local FOREIGN = 0

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local keys = KEYS

-- The states this call works on, by the key's place in KEYS, its slot: up to four numbers, nil for no state.
--   fixed_window    A start, B count
--   sliding_window  A start, B count, C previous
--   buckets         A amount, B at, C period
--   sliding_log     A first, B behind the last entry that is kept of the stored list, C entries to append, D their time
local A, B, C, D = {}, {}, {}, {}
-- Microseconds after which a changed state can be forgotten, nil while it is as it was.
local changed = {}
-- The letter of each slot that has a state, or was asked for.
local letters = {}

-- floor(a / b). Exact for whole numbers below 2^53: rounding moves a / b by less than 1 / b, the least by which it can
-- miss a whole number. x % 1 is an operation of the virtual machine, where math.floor and math.fmod call into C; and
-- a % b is a - floor(a / b) * b there, exact for the same reason.
local function div(a, b)
  local x = a / b
  return x - x % 1
end

local function div_ceil(a, b)
  local x = a / b
  local rest = x % 1
  if rest > 0 then
    return x - rest + 1
  end
  return x
end
