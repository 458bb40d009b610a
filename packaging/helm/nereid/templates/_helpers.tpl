{{- define "nereid.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "nereid.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "nereid.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "nereid.selector" -}}
app.kubernetes.io/name: {{ include "nereid.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nereid.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "nereid.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Name and labels of an object: a list of the context and an end of the name. */}}
{{- define "nereid.metadata" -}}
name: {{ include "nereid.fullname" (index . 0) }}{{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "nereid.labels" (index . 0) | nindent 2 }}
{{- end -}}

{{- define "nereid.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "nereid.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "nereid.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a port has TLS: a list of the context and the port's name. */}}
{{- define "nereid.hasTls" -}}
{{- $tls := (index . 0).Values.tls -}}
{{- if and $tls.secret (index $tls (index . 1)) }}true{{ end -}}
{{- end -}}

{{/* What the probes ask: a list of the context and a path. */}}
{{- define "nereid.httpGet" -}}
httpGet:
  path: {{ index . 1 }}
  port: http
  scheme: {{ ternary "HTTPS" "HTTP" (eq (include "nereid.hasTls" (list (index . 0) "http")) "true") }}
  {{- with index (index . 0).Values.options "http-allowed-hosts" }}
  httpHeaders:
    - { name: Host, value: {{ first (splitList "," (first .)) | trim | quote }} }
  {{- end }}
{{- end -}}

{{/* The Secrets that the chart makes, or those that are there. */}}
{{- define "nereid.apiKeysSecret" -}}
{{- if .Values.apiKeys.keys }}{{ include "nereid.fullname" . }}-api-keys{{ else }}{{ .Values.apiKeys.secret }}{{ end -}}
{{- end -}}
{{- define "nereid.objectStoresSecret" -}}
{{- if .Values.objectStores.content }}{{ include "nereid.fullname" . }}-object-stores{{ else }}{{ .Values.objectStores.secret }}{{ end -}}
{{- end -}}

{{/* Values that contradict each other. */}}
{{- define "nereid.check" -}}
{{- if not .Values.models -}}
{{- fail "models is empty: give at least one entry with url, claim, image or volume, for example --set 'models[0].claim=models'" -}}
{{- end -}}
{{- $notice := add (mul (int .Values.probes.readinessPeriodSeconds) (int .Values.probes.readinessFailures)) 1 -}}
{{- if lt (int .Values.shutdown.delaySeconds) (int $notice) -}}
{{- fail (printf "shutdown.delaySeconds is %d, and must be at least %d: probes.readinessPeriodSeconds times probes.readinessFailures, and a second" (int .Values.shutdown.delaySeconds) (int $notice)) -}}
{{- end -}}
{{- if and .Values.apiKeys.secret .Values.apiKeys.keys -}}
{{- fail "apiKeys.secret and apiKeys.keys: give one of them" -}}
{{- end -}}
{{- $anonymous := .Values.apiKeys.anonymous.apis -}}
{{- if and .Values.apiKeys.keys (not (or (has "health" $anonymous) (has "*" $anonymous))) -}}
{{- fail "apiKeys.anonymous.apis has no health: the probes of Kubernetes have no key" -}}
{{- end -}}
{{- range index .Values.options "http-restricted-api" -}}
{{- if has "health" (splitList "," (first (splitList ":" .))) -}}
{{- fail "options.http-restricted-api restricts health: the probes of Kubernetes have no key" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.objectStores.secret .Values.objectStores.content -}}
{{- fail "objectStores.secret and objectStores.content: give one of them" -}}
{{- end -}}
{{- if and (or .Values.tls.mutual.grpc .Values.tls.mutual.metrics) (not .Values.tls.secret) -}}
{{- fail "tls.mutual needs tls.secret" -}}
{{- end -}}
{{- range $port, $isMutual := .Values.tls.mutual -}}
{{- if and $isMutual (not (index $.Values.tls $port)) -}}
{{- fail (printf "tls.mutual.%s needs tls.%s" $port $port) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.repositoryCache.kind "claim") (not .Values.repositoryCache.claim) -}}
{{- fail "repositoryCache.kind is claim, and repositoryCache.claim names none" -}}
{{- end -}}
{{- if and (eq .Values.responseCache.kind "redis") (not .Values.responseCache.redis.host) -}}
{{- fail "responseCache.kind is redis, and responseCache.redis.host is empty" -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if ne .kind "none" -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas is %d, and autoscaling.maxReplicas only %d" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if not (or .queuedWorkSeconds .cpuPercent) -}}
{{- fail "autoscaling.queuedWorkSeconds and autoscaling.cpuPercent are 0: nothing scales the servers" -}}
{{- end -}}
{{- if and .cpuPercent (not (dig "requests" "cpu" "" $.Values.resources)) -}}
{{- fail "autoscaling.cpuPercent needs resources.requests.cpu" -}}
{{- end -}}
{{- if and (eq .kind "keda") .queuedWorkSeconds (not .prometheus) -}}
{{- fail "autoscaling.prometheus is empty: keda asks Prometheus for the work that waits" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name := list "httpRoute" "grpcRoute" -}}
{{- with index $.Values $name -}}
{{- if and .enabled (not .parentRefs) -}}
{{- fail (printf "%s.parentRefs is empty: name the Gateway" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
