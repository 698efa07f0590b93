{{/*
What the schema cannot say: values that are fine alone and cannot work together. All mistakes are told at once, each
naming its keys.
*/}}
{{- define "palang.refuse" -}}
{{- $v := .Values -}}
{{- $wrong := list -}}

{{- /* Counters */}}
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
{{- if $v.redis.perSecond.enabled -}}
{{- $wrong = concat $wrong (include "palang.refuse.redis" (dict "redis" $v.redis.perSecond "path" "redis.perSecond" "hint" "") | fromYamlArray) -}}
{{- end -}}
{{- with $v.redis.tls -}}
{{- if and (or .certKey .keyKey) (not (and .certKey .keyKey .existingSecret)) -}}
{{- $wrong = append $wrong "redis.tls.certKey and redis.tls.keyKey go together and name keys of redis.tls.existingSecret." -}}
{{- end -}}
{{- if and .existingSecret (not .enabled) (not $v.redis.perSecond.tls.enabled) -}}
{{- $wrong = append $wrong "redis.tls.existingSecret is used by nobody: set redis.tls.enabled: true." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Rules */}}
{{- $own := or $v.rules.domains $v.rules.files -}}
{{- if $v.xds.enabled -}}
{{- if or $own $v.rules.existingConfigMap -}}
{{- $wrong = append $wrong "xds.enabled takes the rules from the xDS server: take rules.domains, rules.files and rules.existingConfigMap away." -}}
{{- end -}}
{{- if not $v.xds.serverUrl -}}
{{- $wrong = append $wrong "xds.serverUrl is missing: host:port of the xDS server." -}}
{{- end -}}
{{- if and $v.xds.tls.enabled (not $v.xds.tls.existingSecret) -}}
{{- $wrong = append $wrong "xds.tls.existingSecret is missing: a Secret with ca.crt (and tls.crt, tls.key)." -}}
{{- end -}}
{{- end -}}
{{- if and $own $v.rules.existingConfigMap -}}
{{- $wrong = append $wrong "rules.existingConfigMap replaces rules.domains and rules.files: give one or the others." -}}
{{- end -}}
{{- range $name, $_ := $v.rules.domains -}}
{{- if hasKey $v.rules.files (printf "%s.yaml" $name) -}}
{{- $wrong = append $wrong (printf "rules.files has %s.yaml, and rules.domains.%s makes a file of that name." $name $name) -}}
{{- end -}}
{{- end -}}

{{- /* TLS */}}
{{- with $v.tls -}}
{{- if and .enabled .certManager.enabled .existingSecret -}}
{{- $wrong = append $wrong "tls.existingSecret and tls.certManager.enabled are two sources of one certificate: give one." -}}
{{- end -}}
{{- if and .enabled (not .certManager.enabled) (not .existingSecret) -}}
{{- $wrong = append $wrong "tls.enabled needs a certificate: tls.existingSecret or tls.certManager.enabled." -}}
{{- end -}}
{{- if and .certManager.enabled (not .certManager.issuerRef.name) -}}
{{- $wrong = append $wrong "tls.certManager.issuerRef.name is missing." -}}
{{- end -}}
{{- if and .certManager.enabled (not .enabled) -}}
{{- $wrong = append $wrong "tls.certManager.enabled makes a certificate that tls.enabled: false does not use." -}}
{{- end -}}
{{- if and .mtls.enabled (not .enabled) -}}
{{- $wrong = append $wrong "tls.mtls.enabled needs tls.enabled: true." -}}
{{- end -}}
{{- if and .mtls.san (not .mtls.enabled) -}}
{{- $wrong = append $wrong "tls.mtls.san checks nothing without tls.mtls.enabled: true." -}}
{{- end -}}
{{- end -}}

{{- /* Drain */}}
{{- if lt (include "palang.graceSeconds" . | int) (include "palang.drainSeconds" . | int) -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds (%s) cuts the drain short, which takes up to %s (drain.preStopSeconds, drain.delaySeconds and drain.timeoutSeconds)." (include "palang.graceSeconds" .) (include "palang.drainSeconds" .)) -}}
{{- end -}}

{{- /* Scale and disruption */}}
{{- with $v.autoscaling -}}
{{- if .enabled -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- $wrong = append $wrong (printf "autoscaling.minReplicas (%d) is more than autoscaling.maxReplicas (%d)." (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if and (kindIs "invalid" .targetCPUPercent) (not .metrics) -}}
{{- $wrong = append $wrong "autoscaling needs something to scale by: autoscaling.targetCPUPercent or autoscaling.metrics." -}}
{{- end -}}
{{- if and (not (kindIs "invalid" .targetCPUPercent)) (not (dig "requests" "cpu" "" $v.resources)) -}}
{{- $wrong = append $wrong "autoscaling.targetCPUPercent is a share of resources.requests.cpu, which is missing." -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $v.podDisruptionBudget -}}
{{- if .enabled -}}
{{- $most := not (kindIs "invalid" .maxUnavailable) -}}
{{- $fewest := not (kindIs "invalid" .minAvailable) -}}
{{- if and $most $fewest -}}
{{- $wrong = append $wrong "podDisruptionBudget.minAvailable and podDisruptionBudget.maxUnavailable exclude each other: set one of them to null." -}}
{{- else if not (or $most $fewest) -}}
{{- $wrong = append $wrong "podDisruptionBudget needs maxUnavailable or minAvailable." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Ports */}}
{{- $ports := list (int $v.ports.grpc) (int $v.ports.http) (int $v.ports.metrics) (int $v.ports.debug) -}}
{{- if ne (len ($ports | uniq)) 4 -}}
{{- $wrong = append $wrong (printf "ports: two of grpc, http, metrics and debug are the same (%s)." (join ", " $ports)) -}}
{{- end -}}
{{- if eq (int $v.service.grpcPort) (int $v.service.httpPort) -}}
{{- $wrong = append $wrong "service.grpcPort and service.httpPort are the same." -}}
{{- end -}}

{{- /* Seen */}}
{{- with $v.metrics -}}
{{- if and .serviceMonitor.enabled .podMonitor.enabled -}}
{{- $wrong = append $wrong "metrics.serviceMonitor.enabled and metrics.podMonitor.enabled would scrape every pod twice: choose one." -}}
{{- end -}}
{{- if and (not .enabled) (or .serviceMonitor.enabled .podMonitor.enabled) -}}
{{- $wrong = append $wrong "metrics.serviceMonitor and metrics.podMonitor need metrics.enabled: true." -}}
{{- end -}}
{{- if and .statsd.enabled (not .statsd.host) -}}
{{- $wrong = append $wrong "metrics.statsd.host is missing." -}}
{{- end -}}
{{- end -}}
{{- if and $v.tracing.enabled (not $v.tracing.endpoint) -}}
{{- $wrong = append $wrong "tracing.endpoint is missing, for instance http://otel-collector.observability:4318." -}}
{{- end -}}

{{- /* Environment */}}
{{- $set := list -}}
{{- if not $wrong -}}
{{- range include "palang.env" . | fromYamlArray -}}
{{- $set = append $set .name -}}
{{- end -}}
{{- end -}}
{{- range $v.extraEnv -}}
{{- if has .name $set -}}
{{- $wrong = append $wrong (printf "extraEnv: %s is set by the chart; use the value that sets it (README.md names it)." .name) -}}
{{- end -}}
{{- if and (regexMatch "(^|_)(AUTH|PASSWORD|TOKEN|SECRET)$" .name) .value -}}
{{- $wrong = append $wrong (printf "extraEnv: %s is a secret; give it as valueFrom.secretKeyRef." .name) -}}
{{- end -}}
{{- if and (regexMatch "_(URL|ENDPOINT)$" .name) (contains "@" (toString .value)) -}}
{{- $wrong = append $wrong (printf "extraEnv: %s holds a password; give it as valueFrom.secretKeyRef." .name) -}}
{{- end -}}
{{- end -}}

{{- range $v.extraArgs -}}
{{- if regexMatch "^--[a-z-]*(auth|password|token|secret)(=|$)" . -}}
{{- $wrong = append $wrong (printf "extraArgs: %s takes a secret; give it as extraEnv with valueFrom.secretKeyRef." (splitList "=" . | first)) -}}
{{- end -}}
{{- end -}}

{{- if $wrong -}}
{{- fail (printf "\n\nThese values cannot work:\n  - %s\n" (join "\n  - " $wrong)) -}}
{{- end -}}
{{- end -}}

{{/* What is wrong with one Redis, as a YAML list. Give a dict: redis, path, hint. */}}
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
{{- end -}}
{{- if and (eq $redis.type "sentinel") $redis.url (lt (len (splitList "," $redis.url)) 2) -}}
{{- $wrong = append $wrong (printf "%s.url of type sentinel is the master's name and at least one sentinel: master,host:port." $path) -}}
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
{{- toYaml $wrong -}}
{{- end -}}
