{{/*
What the schema cannot say: values that are fine alone and cannot work together. All mistakes are told at once, each
naming its keys. No message repeats a value that may be a secret.
*/}}
{{- define "palang.refuse" -}}
{{- $wrong := list -}}
{{- range $part := list "counters" "rules" "tls" "running" "reaching" "pod" "seen" -}}
{{- $wrong = concat $wrong (include (printf "palang.refuse.%s" $part) $ | fromYamlArray) -}}
{{- end -}}
{{- /* Last: the environment can be made only of values that are sound. */}}
{{- $wrong = concat $wrong (include "palang.refuse.environment" . | fromYamlArray) -}}
{{- if $wrong -}}
{{- fail (printf "\n\nThese values cannot work:\n  - %s\n" (join "\n  - " $wrong)) -}}
{{- end -}}
{{- end -}}

{{- define "palang.refuse.rules" -}}
{{- $v := .Values -}}
{{- $wrong := list -}}
{{- $own := or $v.rules.domains $v.rules.files -}}
{{- if $v.xds.enabled -}}
{{- if or $own $v.rules.existingConfigMap $v.rules.mergeDomains -}}
{{- $wrong = append $wrong "xds.enabled takes the rules from the xDS server: take rules.domains, rules.files, rules.existingConfigMap and rules.mergeDomains away." -}}
{{- end -}}
{{- if not $v.xds.serverUrl -}}
{{- $wrong = append $wrong "xds.serverUrl is missing: host:port of the xDS server." -}}
{{- end -}}
{{- if and $v.xds.tls.enabled (not $v.xds.tls.existingSecret) -}}
{{- $wrong = append $wrong "xds.tls.existingSecret is missing: a Secret with ca.crt (and tls.crt, tls.key)." -}}
{{- end -}}
{{- if and (not $v.xds.tls.enabled) (or $v.xds.tls.existingSecret $v.xds.tls.serverName) -}}
{{- $wrong = append $wrong "xds.tls.existingSecret and xds.tls.serverName are used by nobody: set xds.tls.enabled: true." -}}
{{- end -}}
{{- else if $v.xds.serverUrl -}}
{{- $wrong = append $wrong "xds.serverUrl is asked by nobody: set xds.enabled: true." -}}
{{- end -}}
{{- if and $own $v.rules.existingConfigMap -}}
{{- $wrong = append $wrong "rules.existingConfigMap replaces rules.domains and rules.files: give one or the others." -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $name, $rules := $v.rules.domains -}}
{{- if hasKey (default dict $v.rules.files) (printf "%s.yaml" $name) -}}
{{- $wrong = append $wrong (printf "rules.files has %s.yaml, and rules.domains.%s makes a file of that name." $name $name) -}}
{{- end -}}
{{- $domain := default $name $rules.domain -}}
{{- if and (hasKey $seen $domain) (not $v.rules.mergeDomains) -}}
{{- $wrong = append $wrong (printf "rules.domains.%s and %s are both of the domain %s, and the second would be refused: set rules.mergeDomains: true, or put them together." $name (get $seen $domain) $domain) -}}
{{- end -}}
{{- $_ := set $seen $domain (printf "rules.domains.%s" $name) -}}
{{- end -}}
{{- range $name, $text := $v.rules.files -}}
{{- $read := fromYaml $text -}}
{{- if hasKey $read "Error" -}}
{{- $wrong = append $wrong (printf "rules.files.%s is no file of rules: %s" $name $read.Error) -}}
{{- else if and $read.domain (hasKey $seen (toString $read.domain)) (not $v.rules.mergeDomains) -}}
{{- $wrong = append $wrong (printf "rules.files.%s and %s are both of the domain %s, and the second would be refused: set rules.mergeDomains: true, or put them together." $name (get $seen (toString $read.domain)) $read.domain) -}}
{{- else if $read.domain -}}
{{- $_ := set $seen (toString $read.domain) (printf "rules.files.%s" $name) -}}
{{- end -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}

{{- define "palang.refuse.tls" -}}
{{- $wrong := list -}}
{{- with .Values.tls -}}
{{- if and .enabled .certManager.enabled .existingSecret -}}
{{- $wrong = append $wrong "tls.existingSecret and tls.certManager.enabled are two sources of one certificate: give one." -}}
{{- end -}}
{{- if and .enabled (not .certManager.enabled) (not .existingSecret) -}}
{{- $wrong = append $wrong "tls.enabled needs a certificate: tls.existingSecret or tls.certManager.enabled." -}}
{{- end -}}
{{- if and .existingSecret (not .enabled) -}}
{{- $wrong = append $wrong "tls.existingSecret is used by nobody: set tls.enabled: true." -}}
{{- end -}}
{{- if .certManager.enabled -}}
{{- if not .certManager.issuerRef.name -}}
{{- $wrong = append $wrong "tls.certManager.issuerRef.name is missing." -}}
{{- end -}}
{{- if not .enabled -}}
{{- $wrong = append $wrong "tls.certManager.enabled makes a certificate that tls.enabled: false does not use." -}}
{{- end -}}
{{- $life := include "palang.micros" .certManager.duration | float64 -}}
{{- $renew := include "palang.micros" .certManager.renewBefore | float64 -}}
{{- if lt $life 3600000000.0 -}}
{{- $wrong = append $wrong (printf "tls.certManager.duration is %s, and cert-manager makes nothing below 1h." .certManager.duration) -}}
{{- end -}}
{{- if or (ge $renew $life) (lt $renew 300000000.0) -}}
{{- $wrong = append $wrong (printf "tls.certManager.renewBefore (%s) is at least 5m and less than tls.certManager.duration (%s)." .certManager.renewBefore .certManager.duration) -}}
{{- end -}}
{{- with .certManager.privateKey -}}
{{- if and .size (ne (eq (default "RSA" .algorithm) "ECDSA") (lt (int .size) 1000)) -}}
{{- $wrong = append $wrong (printf "tls.certManager.privateKey.size %d is no size of %s." (int .size) (default "RSA" .algorithm)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .mtls.enabled (not .enabled) -}}
{{- $wrong = append $wrong "tls.mtls.enabled needs tls.enabled: true." -}}
{{- end -}}
{{- if and (or .mtls.san .mtls.caSecret) (not .mtls.enabled) -}}
{{- $wrong = append $wrong "tls.mtls.san and tls.mtls.caSecret check nothing without tls.mtls.enabled: true." -}}
{{- end -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}

{{- define "palang.refuse.seen" -}}
{{- $v := .Values -}}
{{- $wrong := list -}}
{{- with $v.metrics -}}
{{- if and .serviceMonitor.enabled .podMonitor.enabled -}}
{{- $wrong = append $wrong "metrics.serviceMonitor.enabled and metrics.podMonitor.enabled would scrape every pod twice: choose one." -}}
{{- end -}}
{{- range $name := list "serviceMonitor" "podMonitor" "prometheusRule" "dashboard" -}}
{{- if and (not $v.metrics.enabled) (get $v.metrics $name).enabled -}}
{{- $wrong = append $wrong (printf "metrics.%s.enabled has nothing to read: with metrics.enabled: false there is no metrics port." $name) -}}
{{- end -}}
{{- end -}}
{{- range $name := list "serviceMonitor" "podMonitor" -}}
{{- $one := get $v.metrics $name -}}
{{- $interval := include "palang.seconds" $one.interval | float64 -}}
{{- if and $one.interval (lt $interval 1.0) -}}
{{- $wrong = append $wrong (printf "metrics.%s.interval is at least 1s." $name) -}}
{{- end -}}
{{- if and $one.interval $one.scrapeTimeout (gt (include "palang.seconds" $one.scrapeTimeout | float64) $interval) -}}
{{- $wrong = append $wrong (printf "metrics.%s.scrapeTimeout (%s) is longer than metrics.%s.interval (%s), which Prometheus refuses." $name $one.scrapeTimeout $name $one.interval) -}}
{{- end -}}
{{- end -}}
{{- $alerts := list -}}
{{- range ($.Files.Get "alerts/palang.yaml" | fromYaml).groups -}}
{{- range .rules -}}
{{- with .alert -}}{{- $alerts = append $alerts . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- range .prometheusRule.disabledAlerts -}}
{{- if not (has . $alerts) -}}
{{- $wrong = append $wrong (printf "metrics.prometheusRule.disabledAlerts: there is no alert %s; there are %s." . (join ", " $alerts)) -}}
{{- end -}}
{{- end -}}
{{- if and .statsd.enabled (not .statsd.host) -}}
{{- $wrong = append $wrong "metrics.statsd.host is missing." -}}
{{- end -}}
{{- end -}}
{{- if and $v.tracing.enabled (not $v.tracing.endpoint) -}}
{{- $wrong = append $wrong "tracing.endpoint is missing, for instance http://otel-collector.observability:4318." -}}
{{- end -}}
{{- if regexMatch "://[^/]*@" $v.tracing.endpoint -}}
{{- $wrong = append $wrong "tracing.endpoint holds a user or password: write it without, and give OTEL_EXPORTER_OTLP_HEADERS in extraEnv with valueFrom.secretKeyRef." -}}
{{- end -}}
{{- if and $v.test.clientCertSecret (not $v.tls.mtls.enabled) -}}
{{- $wrong = append $wrong "test.clientCertSecret is presented to nobody without tls.mtls.enabled: true." -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}
