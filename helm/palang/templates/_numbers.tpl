{{/* Durations and quantities as numbers, to compare them. */}}

{{/* A duration of Go, such as 1m30s, in microseconds. */}}
{{- define "palang.micros" -}}
{{- $scale := dict "ns" 0.001 "us" 1.0 "µs" 1.0 "ms" 1000.0 "s" 1000000.0 "m" 60000000.0 "h" 3600000000.0 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h)" . -1 -}}
{{- $unit := regexFind "[^0-9.]+$" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get $scale $unit)) -}}
{{- end -}}
{{- printf "%f" $sum -}}
{{- end -}}

{{/* A duration of Prometheus, such as 1h30m, in seconds. */}}
{{- define "palang.seconds" -}}
{{- $scale := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h|d)" . -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get $scale $unit)) -}}
{{- end -}}
{{- printf "%f" $sum -}}
{{- end -}}

{{/* A quantity of Kubernetes, such as 128Mi, as a number. */}}
{{- define "palang.quantity" -}}
{{- if kindIs "string" . -}}
{{- $scale := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 -}}
{{- $binary := dict "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $suffix := regexFind "[A-Za-z]*$" . -}}
{{- printf "%f" (mulf (trimSuffix $suffix . | float64) (get (merge $scale $binary) $suffix)) -}}
{{- else -}}
{{- printf "%f" (float64 .) -}}
{{- end -}}
{{- end -}}
