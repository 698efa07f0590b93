{{/* Names, labels, images, and what depends on the cluster's version. */}}

{{- define "palang.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
Room is kept for the longest suffix, so that two objects never get one name. The name of a Service has no dots and begins
with a letter; that of a release may be otherwise.
*/}}
{{- define "palang.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = contains (include "palang.name" .) .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name (include "palang.name" .)) | replace "." "-" -}}
{{- if regexMatch "^[0-9]" $name -}}
{{- $name = printf "r%s" $name -}}
{{- end -}}
{{- end -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "palang.headlessName" -}}{{ include "palang.fullname" . }}-headless{{- end -}}
{{- define "palang.trialName" -}}{{ include "palang.fullname" . }}-trial-store{{- end -}}
{{- define "palang.secretName" -}}{{ include "palang.fullname" . }}-redis{{- end -}}
{{- define "palang.rulesName" -}}{{ default (printf "%s-rules" (include "palang.fullname" .)) .Values.rules.existingConfigMap }}{{- end -}}
{{- define "palang.tlsSecretName" -}}{{ default (printf "%s-tls" (include "palang.fullname" .)) .Values.tls.existingSecret }}{{- end -}}
{{- define "palang.clientCaSecretName" -}}{{ default (include "palang.tlsSecretName" .) .Values.tls.mtls.caSecret }}{{- end -}}
{{- define "palang.host" -}}{{ include "palang.fullname" . }}.{{ .Release.Namespace }}.svc.cluster.local{{- end -}}

{{- define "palang.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "palang.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* What pods are chosen by: never changes during the life of a release. */}}
{{- define "palang.selectorLabels" -}}
app.kubernetes.io/name: {{ include "palang.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: ratelimit
{{- end -}}

{{- define "palang.trialSelectorLabels" -}}
app.kubernetes.io/name: {{ include "palang.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: trial-store
{{- end -}}

{{/* Labels every object has besides its own. */}}
{{- define "palang.sharedLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ regexReplaceAll "^[^A-Za-z0-9]+|[^A-Za-z0-9]+$" (.Values.image.tag | default .Chart.AppVersion | trunc 63) "" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: palang
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of those, the ones for pods: a new chart alone, with the image as it was, must not restart them. */}}
{{- define "palang.sharedPodLabels" -}}
{{- omit (include "palang.sharedLabels" . | fromYaml) "helm.sh/chart" "app.kubernetes.io/managed-by" | toYaml -}}
{{- end -}}

{{/*
Metadata of an object. Give a dict: root, name, and if need be namespace, component, labels, annotations.
The chart's own labels win: a selector must find what it is meant to.
*/}}
{{- define "palang.metadata" -}}
{{- $root := .root -}}
{{- $own := merge (dict "app.kubernetes.io/component" (default "ratelimit" .component)) (omit (include "palang.selectorLabels" $root | fromYaml) "app.kubernetes.io/component") -}}
{{- $labels := merge $own (default dict .labels) (include "palang.sharedLabels" $root | fromYaml) -}}
{{- $annotations := merge (dict) (default dict .annotations) (default dict $root.Values.commonAnnotations) -}}
name: {{ .name }}
namespace: {{ default $root.Release.Namespace .namespace }}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Give a dict: root, image, and the tag if the image has none. */}}
{{- define "palang.image" -}}
{{- $registry := default .image.registry (dig "imageRegistry" "" (default dict .root.Values.global)) -}}
{{- $name := empty $registry | ternary .image.repository (printf "%s/%s" $registry .image.repository) -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "palang.imagePullSecrets" -}}
{{- with concat (dig "imagePullSecrets" list (default dict .Values.global)) (default list .Values.image.pullSecrets) | uniq -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* "true" if the cluster is at least of that version, given as a list: root, "1.30". */}}
{{- define "palang.kubernetes" -}}
{{- if semverCompare (printf ">=%s-0" (index . 1)) (index . 0).Capabilities.KubeVersion.Version -}}true{{- end -}}
{{- end -}}

{{/* The native sleep action: a distroless image has no shell to sleep in. */}}
{{- define "palang.preStopSeconds" -}}
{{- if and (not .Values.lifecycle) (include "palang.kubernetes" (list . "1.30")) -}}
{{- int .Values.drain.preStopSeconds -}}
{{- else -}}0{{- end -}}
{{- end -}}

{{/* Where preStop cannot sleep, the service itself waits that long. */}}
{{- define "palang.shutdownDelaySeconds" -}}
{{- if or .Values.lifecycle (include "palang.kubernetes" (list . "1.30")) -}}
{{- int .Values.drain.delaySeconds -}}
{{- else -}}
{{- add .Values.drain.delaySeconds .Values.drain.preStopSeconds -}}
{{- end -}}
{{- end -}}

{{/* How long a drain takes at most: preStop sleep, delay, calls in flight. */}}
{{- define "palang.drainSeconds" -}}
{{- add (include "palang.preStopSeconds" .) (include "palang.shutdownDelaySeconds" .) .Values.drain.timeoutSeconds -}}
{{- end -}}

{{/* Five seconds are for the kubelet and for the last telemetry. */}}
{{- define "palang.graceSeconds" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- add (include "palang.drainSeconds" .) 5 -}}
{{- else -}}
{{- int .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{- define "palang.trafficDistribution" -}}
{{- $wish := .Values.service.trafficDistribution -}}
{{- if and $wish (include "palang.kubernetes" (list . "1.31")) -}}
{{- if include "palang.kubernetes" (list . "1.35") -}}
{{- $wish -}}
{{- else -}}
PreferClose
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The most pods this release may have. */}}
{{- define "palang.mostPods" -}}
{{- .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicaCount | int -}}
{{- end -}}

{{/* "true" if the chart makes a Secret, be it for a user alone. */}}
{{- define "palang.secretIsMade" -}}
{{- if and (eq .Values.store "redis") (include "palang.secretData" . | fromYaml) -}}true{{- end -}}
{{- end -}}
