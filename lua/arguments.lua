-- What a call is asked for; README.md states the format.

-- Microseconds that pinned calls add to an expiry: their clock stands still while Redis's own goes on.
local PINNED = 86400000000
local HEADER, QUOTA, RECORD = 20, 25, 22

local arguments = ARGV[1]
local now, quotas, logs, groups = unpack_struct('<dI4I4I4', arguments)
local extra = 0
if now > 0 then
  extra = PINNED
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The quotas, and which algorithms they name. The numbers are limit and window, or capacity (max_delay), tokens and
-- period.
local algorithm, q1, q2, q3 = {}, {}, {}, {}
local named = {}
for quota = 1, quotas do
  local letter
  letter, q1[quota], q2[quota], q3[quota] =
    unpack_struct('<Bddd', arguments, HEADER + (quota - 1) * QUOTA + 1)
  algorithm[quota] = letter
  named[letter] = true
end
