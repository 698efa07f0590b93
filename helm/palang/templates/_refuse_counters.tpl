{{/* What is wrong with where counters live, as a YAML list. */}}
{{- define "palang.refuse.counters" -}}
{{- $v := .Values -}}
{{- $wrong := list -}}
{{- $pods := include "palang.mostPods" . | int -}}
{{- if and (eq $v.store "memory") (gt $pods 1) (not $v.memory.acceptMultipliedLimits) -}}
{{- $wrong = append $wrong (printf "store: memory counts in each pod alone, and %s allows %d pods: every limit would be multiplied by up to %d. Use store: redis, or one pod, or accept it with memory.acceptMultipliedLimits: true." ($v.autoscaling.enabled | ternary "autoscaling.maxReplicas" "replicaCount") $pods $pods) -}}
{{- end -}}
{{- if and (eq $v.store "memory") (or $v.redis.url $v.redis.existingSecret.name $v.redis.trial.enabled $v.redis.perSecond.enabled) -}}
{{- $wrong = append $wrong "store: memory does not use the Redis that redis.* names: set store: redis, or take redis.* away." -}}
{{- end -}}
{{- if eq $v.store "redis" -}}
{{- if $v.redis.trial.enabled -}}
{{- if or $v.redis.url $v.redis.existingSecret.name -}}
{{- $wrong = append $wrong "redis.trial.enabled runs a store of its own: take redis.url and redis.existingSecret.name away, or the trial store." -}}
{{- end -}}
{{- if or (ne $v.redis.type "single") $v.redis.tls.enabled -}}
{{- $wrong = append $wrong "redis.trial.enabled is a single server without TLS: redis.type must be single and redis.tls.enabled false." -}}
{{- end -}}
{{- if $v.redis.username -}}
{{- $wrong = append $wrong "redis.username: the store of redis.trial.enabled has only the default user." -}}
{{- end -}}
{{- else -}}
{{- $wrong = concat $wrong (include "palang.refuse.redis" (dict "redis" $v.redis "path" "redis" "hint" " To try Palang out set redis.trial.enabled: true, or store: memory with replicaCount: 1.") | fromYamlArray) -}}
{{- end -}}
{{- $own := include "palang.secretName" . -}}
{{- range $path, $given := dict "redis" $v.redis.existingSecret "redis.perSecond" $v.redis.perSecond.existingSecret -}}
{{- if eq $given.name $own -}}
{{- $wrong = append $wrong (printf "%s.existingSecret.name is %s, which is the name of the chart's own Secret: give yours another, for instance redis-credentials." $path $own) -}}
{{- end -}}
{{- end -}}
{{- with $v.redis.perSecond -}}
{{- if .enabled -}}
{{- $wrong = concat $wrong (include "palang.refuse.redis" (dict "redis" . "path" "redis.perSecond" "hint" "") | fromYamlArray) -}}
{{- if and .url (eq .url $v.redis.url) -}}
{{- $wrong = append $wrong "redis.perSecond.url is redis.url: a Redis of their own for limits per second is another one." -}}
{{- end -}}
{{- else if or .url .existingSecret.name .password -}}
{{- $wrong = append $wrong "redis.perSecond is used by nobody: set redis.perSecond.enabled: true." -}}
{{- end -}}
{{- end -}}
{{- with $v.redis.tls -}}
{{- if and (or .certKey .keyKey) (not (and .certKey .keyKey .existingSecret)) -}}
{{- $wrong = append $wrong "redis.tls.certKey and redis.tls.keyKey go together and name keys of redis.tls.existingSecret." -}}
{{- end -}}
{{- $encrypted := or .enabled .sentinels $v.redis.perSecond.tls.enabled (hasPrefix "rediss://" $v.redis.url) $v.redis.existingSecret.urlKey -}}
{{- if and (or .existingSecret .skipHostnameVerification) (not $encrypted) -}}
{{- $wrong = append $wrong "redis.tls.existingSecret and redis.tls.skipHostnameVerification are used by nobody: set redis.tls.enabled: true." -}}
{{- end -}}
{{- if and .sentinels (ne $v.redis.type "sentinel") (ne $v.redis.perSecond.type "sentinel") -}}
{{- $wrong = append $wrong "redis.tls.sentinels: there are no sentinels, redis.type is not sentinel." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $wait := include "palang.micros" $v.failure.storeTimeout | float64 -}}
{{- if or (lt $wait 1000.0) (gt $wait 60000000.0) -}}
{{- $wrong = append $wrong (printf "failure.storeTimeout is %s, and 1ms to 1m is allowed: an answer takes a round trip, and Envoy waits 20 ms for it." $v.failure.storeTimeout) -}}
{{- end -}}
{{- with $v.limits.localCacheBytes -}}
{{- if lt (int64 .) 65536 -}}
{{- $wrong = append $wrong (printf "limits.localCacheBytes is %d, and a key takes some 250 bytes: 0 (off), or 65536 and more." (int64 .)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}

{{/* What is wrong with one Redis. Give a dict: redis, path, hint. */}}
{{- define "palang.refuse.redis" -}}
{{- $redis := .redis -}}
{{- $path := .path -}}
{{- $given := $redis.existingSecret -}}
{{- $wrong := list -}}
{{- if and $redis.url $given.urlKey -}}
{{- $wrong = append $wrong (printf "%s.url and %s.existingSecret.urlKey are two addresses: give one." $path $path) -}}
{{- else if not (or $redis.url $given.urlKey) -}}
{{- $wrong = append $wrong (printf "%s.url is missing (or %s.existingSecret with urlKey): where are the counters to live?%s" $path $path .hint) -}}
{{- end -}}
{{- if contains "@" $redis.url -}}
{{- $wrong = append $wrong (printf "%s.url holds a user or password: put the address into a Secret and name it in %s.existingSecret.name and .urlKey." $path $path) -}}
{{- else if $redis.url -}}
{{- $wrong = concat $wrong (include "palang.refuse.address" (dict "url" $redis.url "type" $redis.type "path" $path) | fromYamlArray) -}}
{{- if and $redis.tls.enabled (or (hasPrefix "/" $redis.url) (hasPrefix "unix:" $redis.url)) -}}
{{- $wrong = append $wrong (printf "%s.tls.enabled: there is no TLS on the Unix socket %s.url." $path $path) -}}
{{- end -}}
{{- end -}}
{{- $keys := list -}}
{{- range $key := list "urlKey" "usernameKey" "passwordKey" "sentinelPasswordKey" -}}
{{- with get $given $key -}}{{- $keys = append $keys $key -}}{{- end -}}
{{- end -}}
{{- if and $given.name (not $keys) -}}
{{- $wrong = append $wrong (printf "%s.existingSecret.name is given, but none of its keys (urlKey, usernameKey, passwordKey, sentinelPasswordKey) is." $path) -}}
{{- end -}}
{{- if and $keys (not $given.name) -}}
{{- $wrong = append $wrong (printf "%s.existingSecret.name is missing, but %s is given." $path (join ", " $keys)) -}}
{{- end -}}
{{- range $pair := list (list "username" "usernameKey") (list "password" "passwordKey") (list "sentinelPassword" "sentinelPasswordKey") -}}
{{- if and (get $redis (index $pair 0)) (get $given (index $pair 1)) -}}
{{- $wrong = append $wrong (printf "%s.%s and %s.existingSecret.%s say the same thing: give one." $path (index $pair 0) $path (index $pair 1)) -}}
{{- end -}}
{{- end -}}
{{- if and (or $redis.username $given.usernameKey) (not (or $redis.password $given.passwordKey)) -}}
{{- $wrong = append $wrong (printf "%s.username needs a password: %s.password or %s.existingSecret.passwordKey." $path $path $path) -}}
{{- end -}}
{{- if and (or $redis.sentinelPassword $given.sentinelPasswordKey) (ne $redis.type "sentinel") -}}
{{- $wrong = append $wrong (printf "%s.sentinelPassword is asked for by nobody: %s.type is %s." $path $path $redis.type) -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}

{{/* What is wrong with the shape of an address, as the service reads it. Give a dict: url, type, path. */}}
{{- define "palang.refuse.address" -}}
{{- $path := .path -}}
{{- $type := .type -}}
{{- $wrong := list -}}
{{- $items := splitList "," .url -}}
{{- if eq $type "single" -}}
{{- if gt (len $items) 1 -}}
{{- $wrong = append $wrong (printf "%s.url is a list, and %s.type single is one server: set %s.type to sentinel or cluster." $path $path $path) -}}
{{- end -}}
{{- else if eq $type "sentinel" -}}
{{- if not (regexMatch "^[A-Za-z0-9._-]+$" (first $items)) -}}
{{- $wrong = append $wrong (printf "%s.url of type sentinel begins with the master's name: master,host:port,host:port." $path) -}}
{{- end -}}
{{- $items = rest $items -}}
{{- if not $items -}}
{{- $wrong = append $wrong (printf "%s.url of type sentinel is the master's name and at least one sentinel: master,host:port." $path) -}}
{{- end -}}
{{- end -}}
{{- if ne (len $items) (len (uniq $items)) -}}
{{- $wrong = append $wrong (printf "%s.url names a server twice." $path) -}}
{{- end -}}
{{- $port := "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])" -}}
{{- $name := "[A-Za-z0-9_]([-A-Za-z0-9._]*[A-Za-z0-9._])?" -}}
{{- $brackets := "\\[[0-9a-fA-F:.]+\\]" -}}
{{- $database := eq $type "cluster" | ternary "(/0?)?" "(/[0-9]*)?" -}}
{{- $shape := printf "^(%s(:%s)?|%s:%s|rediss?://(%s|%s)(:%s)?%s)$" $name $port $brackets $port $name $brackets $port $database -}}
{{- range $item := $items -}}
{{- if not (or (regexMatch $shape $item) (and (eq $type "single") (regexMatch "^(unix://)?/[^,]+$" $item))) -}}
{{- $wrong = append $wrong (printf "%s.url is not of the form that type %s takes: host, host:port (up to 65535, IPv6 in brackets), redis://host:port%s or rediss:// with TLS, with commas between several." $path $type (eq $type "cluster" | ternary "" "/db")) -}}
{{- break -}}
{{- end -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}
