{{/* Settings of the service that values of the chart make, and those values: two places for one thing would contradict. */}}
{{- define "palang.env.owned" -}}
CACHE_KEY_PREFIX: limits.keyPrefix
CONFIG_GRPC_XDS_CLIENT_TLS_CERT: xds.tls.clientCertificate
CONFIG_GRPC_XDS_CLIENT_TLS_KEY: xds.tls.clientCertificate
CONFIG_GRPC_XDS_NODE_ID: xds.nodeId
CONFIG_GRPC_XDS_NODE_METADATA: xds.nodeMetadata
CONFIG_GRPC_XDS_SERVER_TLS_CACERT: xds.tls.existingSecret
CONFIG_GRPC_XDS_SERVER_TLS_SAN: xds.tls.serverName
CONFIG_GRPC_XDS_SERVER_URL: xds.serverUrl
CONFIG_GRPC_XDS_SERVER_USE_TLS: xds.tls.enabled
CONFIG_TYPE: xds.enabled
DEBUG_HOST: debug.exposed
DEBUG_PORT: ports.debug
FAILURE_MODE: failure.mode
FORCE_START_WITHOUT_INITIAL_CONFIG: xds.startWithoutRules
GRPC_CLIENT_TLS_CACERT: tls.mtls.enabled
GRPC_CLIENT_TLS_SAN: tls.mtls.san
GRPC_HOST: listenAddress
GRPC_MAX_CONNECTION_AGE: grpc.maxConnectionAge
GRPC_PORT: ports.grpc
GRPC_SERVER_TLS_CERT: tls.existingSecret
GRPC_SERVER_TLS_KEY: tls.existingSecret
GRPC_SERVER_USE_TLS: tls.enabled
HOST: listenAddress
LIMIT_RESPONSE_HEADERS_ENABLED: responses.limitHeaders
LOCAL_CACHE_SIZE_IN_BYTES: limits.localCacheBytes
LOG_FORMAT: logging.format
LOG_LEVEL: logging.level
MEMORY_MAX_KEYS: memory.maxKeys
MERGE_DOMAIN_CONFIG: rules.mergeDomains
NEAR_LIMIT_RATIO: limits.nearLimitRatio
OTEL_EXPORTER_OTLP_ENDPOINT: tracing.endpoint
PALANG_RULES: rules.existingConfigMap
PORT: ports.http
PROMETHEUS_ADDR: ports.metrics
RATE_LIMIT_HEADERS: responses.headerStyles
REDIS_PASSWORD: redis.existingSecret.passwordKey
REDIS_PERSECOND: redis.perSecond.enabled
REDIS_PERSECOND_PASSWORD: redis.perSecond.existingSecret.passwordKey
REDIS_PERSECOND_POOL_SIZE: redis.perSecond.poolSize
REDIS_PERSECOND_SOCKET_TYPE: redis.perSecond.url
REDIS_PERSECOND_TLS: redis.perSecond.tls.enabled
REDIS_PERSECOND_TYPE: redis.perSecond.type
REDIS_PERSECOND_URL: redis.perSecond.url
REDIS_PERSECOND_USER: redis.perSecond.username
REDIS_POOL_SIZE: redis.poolSize
REDIS_SENTINEL_TLS: redis.tls.sentinels
REDIS_SOCKET_TYPE: redis.url
REDIS_TLS: redis.tls.enabled
REDIS_TLS_CACERT: redis.tls.caKey
REDIS_TLS_CLIENT_CERT: redis.tls.certKey
REDIS_TLS_CLIENT_KEY: redis.tls.keyKey
REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: redis.tls.skipHostnameVerification
REDIS_TYPE: redis.type
REDIS_URL: redis.url
REDIS_USER: redis.username
REPLICAS_DNS: the headless Service, by itself
RESPONSE_DYNAMIC_METADATA: responses.dynamicMetadata
SHADOW_MODE: limits.shadowMode
SHUTDOWN_DELAY: drain.delaySeconds
SHUTDOWN_TIMEOUT: drain.timeoutSeconds
STATSD_HOST: metrics.statsd.host
STATSD_PORT: metrics.statsd.port
STATSD_PROTOCOL: metrics.statsd.protocol
STORE_TIMEOUT: failure.storeTimeout
TRACING_ENABLED: tracing.enabled
TRACING_EXPORTER_PROTOCOL: tracing.protocol
TRACING_SAMPLING_RATE: tracing.samplingRate
TRACING_SERVICE_INSTANCE_ID: tracing.enabled
TRACING_SERVICE_NAME: tracing.serviceName
TRACING_SERVICE_NAMESPACE: tracing.enabled
USE_PROMETHEUS: metrics.enabled
USE_STATSD: metrics.statsd.enabled
WORKERS: workers
XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: xds.maxMessageBytes
{{- end -}}

{{/* What is wrong with extraEnv and extraArgs, as a YAML list. */}}
{{- define "palang.refuse.environment" -}}
{{- $owned := include "palang.env.owned" . | fromYaml -}}
{{- $wrong := list -}}
{{- $names := list -}}
{{- range .Values.extraEnv -}}
{{- if has .name $names -}}
{{- $wrong = append $wrong (printf "extraEnv: %s is there twice." .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if hasKey . "value" | eq (hasKey . "valueFrom") -}}
{{- $wrong = append $wrong (printf "extraEnv: %s needs either value or valueFrom." .name) -}}
{{- end -}}
{{- $value := toString .value -}}
{{- $reference := regexMatch "^([A-Za-z0-9_.-]*:)?\\$\\([A-Za-z_][A-Za-z0-9_.-]*\\)$" $value -}}
{{- if and .value (not $reference) (include "palang.env.isSecret" (list .name $value)) -}}
{{- $wrong = append $wrong (printf "extraEnv: %s holds a secret in clear; give it as valueFrom.secretKeyRef, or by redis.existingSecret if it is for Redis." .name) -}}
{{- else if hasKey $owned .name -}}
{{- $wrong = append $wrong (printf "extraEnv: %s is set by %s of the chart." .name (get $owned .name)) -}}
{{- end -}}
{{- end -}}

{{- /* What is made only of some values, such as REDIS_SENTINEL_AUTH. */}}
{{- if not $wrong -}}
{{- range include "palang.env" . | fromYamlArray -}}
{{- if has .name $names -}}
{{- $wrong = append $wrong (printf "extraEnv: %s is set by the chart." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $flags := list -}}
{{- range .Values.extraArgs -}}
{{- $flag := regexFind "^--[a-z0-9-]+" . -}}
{{- if $flag -}}
{{- if has $flag $flags -}}
{{- $wrong = append $wrong (printf "extraArgs: %s is there twice." $flag) -}}
{{- end -}}
{{- $flags = append $flags $flag -}}
{{- $name := trimPrefix "--" $flag | replace "-" "_" | upper -}}
{{- $value := trimPrefix $flag . | trimPrefix "=" -}}
{{- if include "palang.env.isSecret" (list $name $value) -}}
{{- $wrong = append $wrong (printf "extraArgs: %s takes a secret; give it as extraEnv with valueFrom.secretKeyRef, or by redis.existingSecret if it is for Redis." $flag) -}}
{{- else -}}
{{- $names := list $name (printf "CONFIG_GRPC_%s" $name) (printf "PALANG_%s" $name) (eq $flag "--merge-domains" | ternary "MERGE_DOMAIN_CONFIG" $name) -}}
{{- range $name := uniq $names -}}
{{- if hasKey $owned $name -}}
{{- $wrong = append $wrong (printf "extraArgs: %s is set by %s of the chart." $flag (get $owned $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- else if regexMatch "://[^/]*@" . -}}
{{- $wrong = append $wrong "extraArgs: an address holds a user or password; give it as extraEnv with valueFrom.secretKeyRef, or by redis.existingSecret if it is for Redis." -}}
{{- end -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}

{{/*
"true" if a setting is a secret by its name, or holds one. Give a list: name, value. Headers for a collector or a control
plane are there to carry a token, whatever it is called; RATE_LIMIT_HEADERS are styles of answers.
*/}}
{{- define "palang.env.isSecret" -}}
{{- $name := index . 0 | upper -}}
{{- $value := index . 1 -}}
{{- if or (regexMatch "(AUTH|PASSWORD|PASSWD|TOKEN|SECRET|CREDENTIALS?|API_?KEY|PRIVATE_KEY)$" $name) (regexMatch "://[^/]*@" $value) (and (regexMatch "(_|^)(URL|ENDPOINT|ADDR)$" $name) (contains "@" $value)) (and (hasSuffix "HEADERS" $name) (ne $name "RATE_LIMIT_HEADERS")) -}}true{{- end -}}
{{- end -}}

{{/* Names in extraEnv, as a YAML list. */}}
{{- define "palang.extraEnvNames" -}}
{{- $names := list -}}
{{- range .Values.extraEnv -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}
