{{/* The file of options. The chart sets the first ones; values.schema.json keeps them out of `options`. */}}
{{- define "nereid.toml" -}}
{{- include "nereid.check" . -}}
{{- $options := deepCopy .Values.options -}}
{{- $repositories := list -}}
{{- range $number, $entry := .Values.models -}}
{{- if $entry.url -}}
{{- $repositories = append $repositories $entry.url -}}
{{- else -}}
{{- $path := default "" $entry.path | trimAll "/" -}}
{{- $repositories = append $repositories (printf "/models/%d/%s" $number $path | trimSuffix "/") -}}
{{- end -}}
{{- end -}}
{{- $_ := set $options "model-repository" $repositories -}}
{{- $_ := set $options "model-repository-cache-directory" "/var/cache/nereid/models" -}}
{{- $_ := set $options "http-port" 8000 -}}
{{- $_ := set $options "grpc-port" 8001 -}}
{{- $_ := set $options "metrics-port" 8002 -}}
{{- $_ := set $options "shutdown-delay-secs" .Values.shutdown.delaySeconds -}}
{{- $_ := set $options "exit-timeout-secs" .Values.shutdown.exitTimeoutSeconds -}}
{{- if include "nereid.apiKeysSecret" . -}}
{{- $_ := set $options "api-key-file" "/secrets/api-keys/keys.json" -}}
{{- end -}}
{{- if include "nereid.hasTls" (list . "http") -}}
{{- $_ := set $options "http-use-ssl" true -}}
{{- $_ := set $options "http-server-cert" "/secrets/tls/tls.crt" -}}
{{- $_ := set $options "http-server-key" "/secrets/tls/tls.key" -}}
{{- end -}}
{{- if include "nereid.hasTls" (list . "grpc") -}}
{{- $_ := set $options "grpc-use-ssl" true -}}
{{- $_ := set $options "grpc-server-cert" "/secrets/tls/tls.crt" -}}
{{- $_ := set $options "grpc-server-key" "/secrets/tls/tls.key" -}}
{{- if .Values.tls.mutual.grpc -}}
{{- $_ := set $options "grpc-use-ssl-mutual" true -}}
{{- $_ := set $options "grpc-root-cert" "/secrets/tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if include "nereid.hasTls" (list . "metrics") -}}
{{- $_ := set $options "metrics-use-ssl" true -}}
{{- $_ := set $options "metrics-server-cert" "/secrets/tls/tls.crt" -}}
{{- $_ := set $options "metrics-server-key" "/secrets/tls/tls.key" -}}
{{- if .Values.tls.mutual.metrics -}}
{{- $_ := set $options "metrics-use-ssl-mutual" true -}}
{{- $_ := set $options "metrics-root-cert" "/secrets/tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- with .Values.responseCache -}}
{{- if eq .kind "local" -}}
{{- $_ := set $options "cache-config" (list (printf "local,size=%d" (int64 .size))) -}}
{{- else if eq .kind "redis" -}}
{{- $settings := list (printf "redis,host=%s" .redis.host) (printf "redis,port=%d" (int64 .redis.port)) -}}
{{- if .redis.tls -}}
{{- $settings = append $settings "redis,tls_enabled=true" -}}
{{- end -}}
{{- $_ := set $options "cache-config" $settings -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $options }}
{{ $name }} = {{ include "nereid.tomlValue" $value }}
{{- end }}
{{- end -}}

{{/* JSON is TOML here, but for whole numbers, which Helm reads as floats. */}}
{{- define "nereid.tomlValue" -}}
{{- if kindIs "slice" . -}}
[{{ range $number, $item := . }}{{ if $number }}, {{ end }}{{ toJson $item }}{{ end }}]
{{- else if and (kindIs "float64" .) (eq (toString (floor .)) (toString .)) -}}
{{ int64 . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}
