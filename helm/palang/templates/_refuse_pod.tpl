{{/* What is wrong with how pods run and are reached, as YAML lists. */}}
{{- define "palang.refuse.running" -}}
{{- $v := .Values -}}
{{- $wrong := list -}}
{{- if lt (include "palang.graceSeconds" . | int) (include "palang.drainSeconds" . | int) -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds (%s) cuts the drain short, which takes up to %s (drain.preStopSeconds, drain.delaySeconds and drain.timeoutSeconds)." (include "palang.graceSeconds" .) (include "palang.drainSeconds" .)) -}}
{{- end -}}
{{- $age := include "palang.micros" $v.grpc.maxConnectionAge | float64 -}}
{{- if and (gt $age 0.0) (lt $age 10000000.0) -}}
{{- $wrong = append $wrong (printf "grpc.maxConnectionAge is %s: callers would do little but connect. 10s or more, or 0s for connections that stay." $v.grpc.maxConnectionAge) -}}
{{- end -}}

{{- with $v.autoscaling -}}
{{- if .enabled -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- $wrong = append $wrong (printf "autoscaling.minReplicas (%d) is more than autoscaling.maxReplicas (%d)." (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if and (kindIs "invalid" .targetCPUPercent) (not .metrics) -}}
{{- $wrong = append $wrong "autoscaling needs something to scale by: autoscaling.targetCPUPercent or autoscaling.metrics." -}}
{{- end -}}
{{- if and (not (kindIs "invalid" .targetCPUPercent)) (not (dig "requests" "cpu" "" (default dict $v.resources))) -}}
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
{{- with $v.strategy.rollingUpdate -}}
{{- if and (eq $v.strategy.type "RollingUpdate") (regexMatch "^0%?$" (toString .maxSurge)) (regexMatch "^0%?$" (toString .maxUnavailable)) -}}
{{- $wrong = append $wrong "strategy.rollingUpdate.maxSurge and strategy.rollingUpdate.maxUnavailable are both 0: no pod could ever be replaced." -}}
{{- end -}}
{{- end -}}

{{- range $path, $resources := dict "resources" (default dict $v.resources) "redis.trial.resources" (default dict $v.redis.trial.resources) -}}
{{- range $what, $limit := $resources.limits -}}
{{- $request := dig "requests" $what "" $resources -}}
{{- if and (ne (toString $request) "") (gt (include "palang.quantity" $request | float64) (include "palang.quantity" $limit | float64)) -}}
{{- $wrong = append $wrong (printf "%s.requests.%s (%v) is more than %s.limits.%s (%v)." $path $what $request $path $what $limit) -}}
{{- end -}}
{{- end -}}
{{- range $kind := list "requests" "limits" -}}
{{- $memory := dig $kind "memory" "" $resources -}}
{{- if and (ne (toString $memory) "") (lt (include "palang.quantity" $memory | float64) 8388608.0) -}}
{{- $wrong = append $wrong (printf "%s.%s.memory is %v, in which nothing runs: write 128Mi for mebibytes (m is a thousandth of a byte)." $path $kind $memory) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and (eq $v.dnsPolicy "None") (not (dig "nameservers" list (default dict $v.dnsConfig))) -}}
{{- $wrong = append $wrong "dnsPolicy None asks nobody: name servers in dnsConfig.nameservers." -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}

{{- define "palang.refuse.reaching" -}}
{{- $v := .Values -}}
{{- $wrong := list -}}
{{- $ports := list (int $v.ports.grpc) (int $v.ports.http) (int $v.ports.metrics) (int $v.ports.debug) -}}
{{- if ne (len ($ports | uniq)) 4 -}}
{{- $wrong = append $wrong (printf "ports: two of grpc, http, metrics and debug are the same (%s)." (join ", " $ports)) -}}
{{- end -}}
{{- if eq (int $v.service.grpcPort) (int $v.service.httpPort) -}}
{{- $wrong = append $wrong "service.grpcPort and service.httpPort are the same." -}}
{{- end -}}
{{- if and (eq $v.service.ipFamilyPolicy "SingleStack") (gt (len (default list $v.service.ipFamilies)) 1) -}}
{{- $wrong = append $wrong "service.ipFamilies are two, and service.ipFamilyPolicy is SingleStack." -}}
{{- end -}}
{{- if regexMatch "^(127\\.|::1$)" $v.listenAddress -}}
{{- $wrong = append $wrong "listenAddress is the pod's own loopback: neither callers nor the kubelet's probes would get through." -}}
{{- else if and (has "IPv6" (default list $v.service.ipFamilies)) (contains "." $v.listenAddress) -}}
{{- $wrong = append $wrong "listenAddress is IPv4 only, and service.ipFamilies has IPv6." -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}

{{/* Parts of the pod that Kubernetes would refuse, or that take the place of the chart's own. */}}
{{- define "palang.refuse.pod" -}}
{{- $v := .Values -}}
{{- $wrong := list -}}
{{- $volumes := list -}}
{{- range concat (include "palang.volumes" . | fromYamlArray) (default list $v.extraVolumes) -}}
{{- if has .name $volumes -}}
{{- $wrong = append $wrong (printf "extraVolumes: there is a volume %s already." .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- $paths := list -}}
{{- range $v.extraVolumeMounts -}}
{{- if not (has .name $volumes) -}}
{{- $wrong = append $wrong (printf "extraVolumeMounts: there is no volume %s in extraVolumes." .name) -}}
{{- end -}}
{{- if or (has .mountPath $paths) (regexMatch "^/etc/palang(/|$)" .mountPath) -}}
{{- $wrong = append $wrong (printf "extraVolumeMounts: %s is taken." .mountPath) -}}
{{- end -}}
{{- if not (regexMatch "^/[^/]" .mountPath) -}}
{{- $wrong = append $wrong (printf "extraVolumeMounts: %s is not the path of a directory below the root." .mountPath) -}}
{{- end -}}
{{- $paths = append $paths .mountPath -}}
{{- end -}}
{{- $containers := list "palang" -}}
{{- range concat (default list $v.initContainers) (default list $v.extraContainers) -}}
{{- if has .name $containers -}}
{{- $wrong = append $wrong (printf "initContainers, extraContainers: there is a container %s already." .name) -}}
{{- end -}}
{{- $containers = append $containers .name -}}
{{- end -}}
{{- range $name, $probe := $v.probes -}}
{{- $custom := default dict $probe.custom -}}
{{- if and $custom (ne (len (pick $custom "httpGet" "grpc" "tcpSocket" "exec")) 1) -}}
{{- $wrong = append $wrong (printf "probes.%s.custom is a whole probe, with one of httpGet, grpc, tcpSocket and exec." $name) -}}
{{- else if and $v.tls.enabled $custom.grpc (eq (toString $custom.grpc.port) (toString $v.ports.grpc)) -}}
{{- $wrong = append $wrong (printf "probes.%s.custom asks by gRPC, and the kubelet does not speak TLS (tls.enabled)." $name) -}}
{{- end -}}
{{- end -}}
{{- range $index, $object := $v.extraObjects -}}
{{- if kindIs "map" $object -}}
{{- if not (and $object.apiVersion $object.kind (dig "metadata" "name" "" $object)) -}}
{{- $wrong = append $wrong (printf "extraObjects[%d] needs apiVersion, kind and metadata.name." $index) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $wrong -}}
{{- end -}}
