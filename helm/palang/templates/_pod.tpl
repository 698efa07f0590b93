{{/* Parts of the pod. */}}

{{/* One probe. Give a dict: probe (its values), check (what it does). */}}
{{- define "palang.probe" -}}
{{- if .probe.custom -}}
{{- toYaml .probe.custom -}}
{{- else -}}
{{- toYaml .check }}
periodSeconds: {{ int .probe.periodSeconds }}
timeoutSeconds: {{ int .probe.timeoutSeconds }}
failureThreshold: {{ int .probe.failureThreshold }}
{{- end -}}
{{- end -}}

{{/*
The volumes of the chart; each is mounted at /etc/palang/<name>, always as a directory: what is mounted by subPath is
never updated.
*/}}
{{- define "palang.volumes" -}}
{{- $volumes := list -}}
{{- if not .Values.xds.enabled -}}
{{- $volumes = append $volumes (dict "name" "rules" "configMap" (dict "name" (include "palang.rulesName" .))) -}}
{{- end -}}
{{- /* Readable by the pod's group (fsGroup) and nobody else. */}}
{{- if .Values.tls.enabled -}}
{{- $volumes = append $volumes (dict "name" "tls" "secret" (dict "secretName" (include "palang.tlsSecretName" .) "defaultMode" 288)) -}}
{{- if .Values.tls.mtls.enabled -}}
{{- $item := dict "key" .Values.tls.mtls.caKey "path" .Values.tls.mtls.caKey -}}
{{- $volumes = append $volumes (dict "name" "client-ca" "secret" (dict "secretName" (include "palang.clientCaSecretName" .) "defaultMode" 288 "items" (list $item))) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.store "redis") .Values.redis.tls.existingSecret -}}
{{- $volumes = append $volumes (dict "name" "redis-tls" "secret" (dict "secretName" .Values.redis.tls.existingSecret "defaultMode" 288)) -}}
{{- end -}}
{{- if and .Values.xds.enabled .Values.xds.tls.enabled -}}
{{- $volumes = append $volumes (dict "name" "xds-tls" "secret" (dict "secretName" .Values.xds.tls.existingSecret "defaultMode" 288)) -}}
{{- end -}}
{{- toYaml $volumes -}}
{{- end -}}

{{/* What the chart's Secret holds. */}}
{{- define "palang.secretData" -}}
{{- $redis := .Values.redis -}}
{{- $data := dict -}}
{{- range $prefix, $one := dict "redis" $redis "per-second" ($redis.perSecond.enabled | ternary $redis.perSecond dict) -}}
{{- with $one.username }}{{- $_ := set $data (printf "%s-username" $prefix) . -}}{{- end -}}
{{- with $one.password }}{{- $_ := set $data (printf "%s-password" $prefix) . -}}{{- end -}}
{{- with $one.sentinelPassword }}{{- $_ := set $data (printf "%s-sentinel-password" $prefix) . -}}{{- end -}}
{{- end -}}
{{- toYaml $data -}}
{{- end -}}
