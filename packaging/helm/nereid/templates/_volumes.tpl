{{/* An emptyDir with a limit, or without one if it is empty. */}}
{{- define "nereid.emptyDir" -}}
{{- if . -}}
emptyDir: { sizeLimit: {{ . | quote }} }
{{- else -}}
emptyDir: {}
{{- end -}}
{{- end -}}

{{/* The volume for copies of models from object stores. */}}
{{- define "nereid.cache" -}}
{{- if eq .kind "claim" -}}
persistentVolumeClaim: { claimName: {{ .claim }} }
{{- else if eq .kind "ephemeral" -}}
ephemeral:
  volumeClaimTemplate:
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .storageClassName }}
      storageClassName: {{ . }}
      {{- end }}
      resources: { requests: { storage: {{ .size | quote }} } }
{{- else -}}
{{- include "nereid.emptyDir" .sizeLimit -}}
{{- end -}}
{{- end -}}
