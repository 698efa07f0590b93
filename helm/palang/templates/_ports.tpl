{{/* Ports that stand in addresses, for the NetworkPolicy. */}}

{{/* The port of a URL, or the default of its scheme. */}}
{{- define "palang.urlPort" -}}
{{- $authority := (urlParse .).host -}}
{{- if regexMatch ":[0-9]+$" $authority -}}
{{- regexFind "[0-9]+$" $authority -}}
{{- else -}}
{{- hasPrefix "https:" . | ternary 443 80 -}}
{{- end -}}
{{- end -}}

{{/* Ports of all Redis servers, as a YAML list. */}}
{{- define "palang.redisPorts" -}}
{{- $redis := .Values.redis -}}
{{- $ports := list -}}
{{- if .Values.networkPolicy.egress.redisPorts -}}
{{- $ports = .Values.networkPolicy.egress.redisPorts -}}
{{- else -}}
{{- range $one := list $redis ($redis.perSecond.enabled | ternary $redis.perSecond dict) -}}
{{- if $one -}}
{{- /* Without a port it is 6379. A path is a socket in the pod, and a master's name is no address. */}}
{{- range $address := compact (splitList "," (default "" $one.url)) -}}
{{- with regexFind ":[0-9]+(/[0-9]*)?$" $address -}}
{{- $ports = append $ports (regexFind "[0-9]+" . | int) -}}
{{- else -}}
{{- if not (regexMatch "^(unix:|/)" $address) -}}
{{- $ports = append $ports 6379 -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* The addresses of the masters come from the sentinels, and an address in a Secret cannot be read here. */}}
{{- if or (not $one.url) (eq $one.type "sentinel") -}}
{{- $ports = append $ports 6379 -}}
{{- end -}}
{{- if and (not $one.url) (eq $one.type "sentinel") -}}
{{- $ports = append $ports 26379 -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $ports -}}
{{- $ports = list 6379 -}}
{{- end -}}
{{- end -}}
{{- toYaml ($ports | uniq) -}}
{{- end -}}
