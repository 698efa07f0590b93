{{/* What both Services share. */}}

{{- define "palang.service.common" -}}
{{- with .Values.service.ipFamilyPolicy -}}
ipFamilyPolicy: {{ . }}
{{ end -}}
{{- with .Values.service.ipFamilies -}}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{ end -}}
selector:
  {{- include "palang.selectorLabels" . | nindent 2 }}
{{- end -}}

{{/*
HTTP/2 without TLS has a name of its own in Kubernetes. With TLS, proxies such as Istio know it as https.
Give a dict: root, grpc and http (port numbers).
*/}}
{{- define "palang.service.ports" -}}
- name: grpc
  port: {{ int .grpc }}
  targetPort: grpc
  protocol: TCP
  appProtocol: {{ .root.Values.tls.enabled | ternary "https" "kubernetes.io/h2c" }}
- name: http
  port: {{ int .http }}
  targetPort: http
  protocol: TCP
  appProtocol: http
{{- end -}}
