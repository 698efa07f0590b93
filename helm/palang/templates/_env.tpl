{{/* The settings of the service, as the container's environment. */}}

{{/* One plain setting. Give a list: name, value. */}}
{{- define "palang.env.plain" -}}
- name: {{ index . 0 }}
  value: {{ index . 1 | toString | quote }}
{{ end -}}

{{/* One setting from a Secret. Give a list: name, Secret, key. */}}
{{- define "palang.env.secret" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 }}
      key: {{ index . 2 }}
{{ end -}}

{{/* Secret and key of a credential, as a YAML list. Give a list: the named Secret, its key, the value, the chart's Secret, its key. */}}
{{- define "palang.env.source" -}}
{{- if index . 1 -}}
{{- toYaml (list (index . 0) (index . 1)) -}}
{{- else if index . 2 -}}
{{- toYaml (list (index . 3) (index . 4)) -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{/*
One Redis. Give a dict: root, prefix of the settings, redis (its values), keys (prefix of its keys in the chart's Secret),
url (if not the values').
Kubernetes fills in $(NAME) of what comes earlier: the manifest never holds the password.
*/}}
{{- define "palang.env.redis" -}}
{{- $root := .root -}}
{{- $prefix := .prefix -}}
{{- $redis := .redis -}}
{{- $made := include "palang.secretName" $root -}}
{{- $given := $redis.existingSecret -}}
{{ include "palang.env.plain" (list (printf "%s_SOCKET_TYPE" $prefix) "tcp") }}
{{- include "palang.env.plain" (list (printf "%s_TYPE" $prefix) (upper $redis.type)) }}
{{- if $given.urlKey }}
{{- include "palang.env.secret" (list (printf "%s_URL" $prefix) $given.name $given.urlKey) }}
{{- else }}
{{- include "palang.env.plain" (list (printf "%s_URL" $prefix) (default $redis.url .url)) }}
{{- end }}
{{- if not (kindIs "invalid" $redis.poolSize) }}
{{- include "palang.env.plain" (list (printf "%s_POOL_SIZE" $prefix) (int $redis.poolSize)) }}
{{- end }}
{{- $username := include "palang.env.source" (list $given.name $given.usernameKey $redis.username $made (printf "%s-username" .keys)) | fromYamlArray }}
{{- $password := include "palang.env.source" (list $given.name $given.passwordKey $redis.password $made (printf "%s-password" .keys)) | fromYamlArray }}
{{- $sentinel := include "palang.env.source" (list $given.name $given.sentinelPasswordKey $redis.sentinelPassword $made (printf "%s-sentinel-password" .keys)) | fromYamlArray }}
{{- if $username }}
{{- include "palang.env.secret" (concat (list (printf "%s_USER" $prefix)) $username) }}
{{- end }}
{{- /* Not _AUTH, which is split at its first colon. */}}
{{- if $password }}
{{- include "palang.env.secret" (concat (list (printf "%s_PASSWORD" $prefix)) $password) }}
{{- end }}
{{- /* What comes before the first colon is a user: none. */}}
{{- if $sentinel }}
{{- include "palang.env.secret" (concat (list (printf "SECRET_%s_SENTINEL_PASSWORD" $prefix)) $sentinel) }}
{{- include "palang.env.plain" (list (printf "%s_SENTINEL_AUTH" $prefix) (printf ":$(SECRET_%s_SENTINEL_PASSWORD)" $prefix)) }}
{{- end }}
{{- if $redis.tls.enabled }}
{{- include "palang.env.plain" (list (printf "%s_TLS" $prefix) "true") }}
{{- end }}
{{- end -}}

{{- define "palang.env" -}}
{{- $v := .Values -}}
{{- include "palang.env.plain" (list "GRPC_HOST" (include "palang.listenAddress" .)) }}
{{- include "palang.env.plain" (list "GRPC_PORT" (int $v.ports.grpc)) }}
{{- include "palang.env.plain" (list "HOST" (include "palang.listenAddress" .)) }}
{{- include "palang.env.plain" (list "PORT" (int $v.ports.http)) }}
{{- include "palang.env.plain" (list "DEBUG_HOST" ($v.debug.exposed | ternary (include "palang.listenAddress" .) "127.0.0.1")) }}
{{- include "palang.env.plain" (list "DEBUG_PORT" (int $v.ports.debug)) }}
{{- include "palang.env.plain" (list "GRPC_MAX_CONNECTION_AGE" $v.grpc.maxConnectionAge) }}
{{- include "palang.env.plain" (list "SHUTDOWN_DELAY" (printf "%ss" (include "palang.shutdownDelaySeconds" .))) }}
{{- include "palang.env.plain" (list "SHUTDOWN_TIMEOUT" (printf "%ds" (int $v.drain.timeoutSeconds))) }}
{{- include "palang.env.plain" (list "LOG_LEVEL" $v.logging.level) }}
{{- include "palang.env.plain" (list "LOG_FORMAT" $v.logging.format) }}
{{- include "palang.env.plain" (list "FAILURE_MODE" $v.failure.mode) }}
{{- include "palang.env.plain" (list "STORE_TIMEOUT" $v.failure.storeTimeout) }}
{{- if not (kindIs "invalid" $v.workers) }}
{{- include "palang.env.plain" (list "WORKERS" (int $v.workers)) }}
{{- end }}

{{- if $v.xds.enabled }}
{{- include "palang.env.plain" (list "CONFIG_TYPE" "GRPC_XDS_SOTW") }}
{{- include "palang.env.plain" (list "CONFIG_GRPC_XDS_SERVER_URL" $v.xds.serverUrl) }}
{{- include "palang.env.plain" (list "CONFIG_GRPC_XDS_NODE_ID" $v.xds.nodeId) }}
{{- with $v.xds.nodeMetadata }}
{{- $pairs := list }}
{{- range $key, $value := . }}
{{- $pairs = append $pairs (printf "%s=%s" $key $value) }}
{{- end }}
{{- include "palang.env.plain" (list "CONFIG_GRPC_XDS_NODE_METADATA" (join "," $pairs)) }}
{{- end }}
{{- include "palang.env.plain" (list "FORCE_START_WITHOUT_INITIAL_CONFIG" $v.xds.startWithoutRules) }}
{{- if not (kindIs "invalid" $v.xds.maxMessageBytes) }}
{{- include "palang.env.plain" (list "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES" (int64 $v.xds.maxMessageBytes)) }}
{{- end }}
{{- if $v.xds.tls.enabled }}
{{- include "palang.env.plain" (list "CONFIG_GRPC_XDS_SERVER_USE_TLS" "true") }}
{{- include "palang.env.plain" (list "CONFIG_GRPC_XDS_SERVER_TLS_CACERT" "/etc/palang/xds-tls/ca.crt") }}
{{- if $v.xds.tls.clientCertificate }}
{{- include "palang.env.plain" (list "CONFIG_GRPC_XDS_CLIENT_TLS_CERT" "/etc/palang/xds-tls/tls.crt") }}
{{- include "palang.env.plain" (list "CONFIG_GRPC_XDS_CLIENT_TLS_KEY" "/etc/palang/xds-tls/tls.key") }}
{{- end }}
{{- with $v.xds.tls.serverName }}
{{- include "palang.env.plain" (list "CONFIG_GRPC_XDS_SERVER_TLS_SAN" .) }}
{{- end }}
{{- end }}
{{- else }}
{{- include "palang.env.plain" (list "PALANG_RULES" "/etc/palang/rules") }}
{{- if $v.rules.mergeDomains }}
{{- include "palang.env.plain" (list "MERGE_DOMAIN_CONFIG" "true") }}
{{- end }}
{{- end }}

{{- if eq $v.store "redis" }}
{{- include "palang.env.plain" (list "REPLICAS_DNS" (printf "%s.%s.svc" (include "palang.headlessName" .) .Release.Namespace)) }}
{{- $trial := $v.redis.trial.enabled | ternary (printf "%s:6379" (include "palang.trialName" .)) "" }}
{{- include "palang.env.redis" (dict "root" . "prefix" "REDIS" "redis" $v.redis "keys" "redis" "url" $trial) }}
{{- if $v.redis.perSecond.enabled }}
{{- include "palang.env.plain" (list "REDIS_PERSECOND" "true") }}
{{- include "palang.env.redis" (dict "root" . "prefix" "REDIS_PERSECOND" "redis" $v.redis.perSecond "keys" "per-second") }}
{{- end }}
{{- with $v.redis.tls }}
{{- if .existingSecret }}
{{- if .caKey }}
{{- include "palang.env.plain" (list "REDIS_TLS_CACERT" (printf "/etc/palang/redis-tls/%s" .caKey)) }}
{{- end }}
{{- if .certKey }}
{{- include "palang.env.plain" (list "REDIS_TLS_CLIENT_CERT" (printf "/etc/palang/redis-tls/%s" .certKey)) }}
{{- include "palang.env.plain" (list "REDIS_TLS_CLIENT_KEY" (printf "/etc/palang/redis-tls/%s" .keyKey)) }}
{{- end }}
{{- end }}
{{- if .sentinels }}
{{- include "palang.env.plain" (list "REDIS_SENTINEL_TLS" "true") }}
{{- end }}
{{- if .skipHostnameVerification }}
{{- include "palang.env.plain" (list "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" "true") }}
{{- end }}
{{- end }}
{{- else if not (kindIs "invalid" $v.memory.maxKeys) }}
{{- include "palang.env.plain" (list "MEMORY_MAX_KEYS" (int64 $v.memory.maxKeys)) }}
{{- end }}

{{- if $v.limits.shadowMode }}
{{- include "palang.env.plain" (list "SHADOW_MODE" "true") }}
{{- end }}
{{- with $v.limits.keyPrefix }}
{{- include "palang.env.plain" (list "CACHE_KEY_PREFIX" .) }}
{{- end }}
{{- if not (kindIs "invalid" $v.limits.localCacheBytes) }}
{{- include "palang.env.plain" (list "LOCAL_CACHE_SIZE_IN_BYTES" (int64 $v.limits.localCacheBytes)) }}
{{- end }}
{{- if not (kindIs "invalid" $v.limits.nearLimitRatio) }}
{{- include "palang.env.plain" (list "NEAR_LIMIT_RATIO" $v.limits.nearLimitRatio) }}
{{- end }}
{{- if $v.responses.limitHeaders }}
{{- include "palang.env.plain" (list "LIMIT_RESPONSE_HEADERS_ENABLED" "true") }}
{{- end }}
{{- with $v.responses.headerStyles }}
{{- include "palang.env.plain" (list "RATE_LIMIT_HEADERS" (join "," .)) }}
{{- end }}
{{- if $v.responses.dynamicMetadata }}
{{- include "palang.env.plain" (list "RESPONSE_DYNAMIC_METADATA" "true") }}
{{- end }}

{{- if $v.tls.enabled }}
{{- include "palang.env.plain" (list "GRPC_SERVER_USE_TLS" "true") }}
{{- include "palang.env.plain" (list "GRPC_SERVER_TLS_CERT" (printf "/etc/palang/tls/%s" $v.tls.certKey)) }}
{{- include "palang.env.plain" (list "GRPC_SERVER_TLS_KEY" (printf "/etc/palang/tls/%s" $v.tls.keyKey)) }}
{{- if $v.tls.mtls.enabled }}
{{- include "palang.env.plain" (list "GRPC_CLIENT_TLS_CACERT" (printf "/etc/palang/client-ca/%s" $v.tls.mtls.caKey)) }}
{{- with $v.tls.mtls.san }}
{{- include "palang.env.plain" (list "GRPC_CLIENT_TLS_SAN" .) }}
{{- end }}
{{- end }}
{{- end }}

{{- include "palang.env.plain" (list "USE_STATSD" $v.metrics.statsd.enabled) }}
{{- if $v.metrics.statsd.enabled }}
{{- include "palang.env.plain" (list "STATSD_HOST" $v.metrics.statsd.host) }}
{{- include "palang.env.plain" (list "STATSD_PORT" (int $v.metrics.statsd.port)) }}
{{- include "palang.env.plain" (list "STATSD_PROTOCOL" $v.metrics.statsd.protocol) }}
{{- end }}
{{- /* false opens no metrics port. */}}
{{- include "palang.env.plain" (list "USE_PROMETHEUS" $v.metrics.enabled) }}
{{- if $v.metrics.enabled }}
{{- include "palang.env.plain" (list "PROMETHEUS_ADDR" (printf ":%d" (int $v.ports.metrics))) }}
{{- end }}

{{- if $v.tracing.enabled }}
{{- include "palang.env.plain" (list "TRACING_ENABLED" "true") }}
{{- include "palang.env.plain" (list "TRACING_EXPORTER_PROTOCOL" $v.tracing.protocol) }}
{{- include "palang.env.plain" (list "TRACING_SAMPLING_RATE" $v.tracing.samplingRate) }}
{{- include "palang.env.plain" (list "TRACING_SERVICE_NAME" $v.tracing.serviceName) }}
- name: TRACING_SERVICE_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: TRACING_SERVICE_INSTANCE_ID
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{ include "palang.env.plain" (list "OTEL_EXPORTER_OTLP_ENDPOINT" $v.tracing.endpoint) }}
{{- end }}
{{- end -}}

{{- define "palang.listenAddress" -}}
{{- if .Values.listenAddress -}}
{{- .Values.listenAddress -}}
{{- else if or (has "IPv6" (default list .Values.service.ipFamilies)) (hasSuffix "DualStack" .Values.service.ipFamilyPolicy) -}}
::
{{- else -}}
0.0.0.0
{{- end -}}
{{- end -}}
