{{/*
Pieces of the pods. Launcher and workers have the same image, environment, scripts and data, so that a command means the same in both.
Call with (dict "root" $ "role" "worker").
*/}}

{{/* Image reference of the job. */}}
{{- define "deepspeed-job.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else if .tag }}:{{ .tag }}{{ end }}
{{- end -}}
{{- end }}

{{/* Fields of every pod spec that come before its containers. */}}
{{- define "deepspeed-job.podFields" -}}
automountServiceAccountToken: false
# Service links would add an environment variable for each service of the namespace.
enableServiceLinks: false
securityContext: {{ toJson .Values.podSecurityContext }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Where launcher and workers may run. */}}
{{- define "deepspeed-job.placement" -}}
{{- $role := get .root.Values .role -}}
{{- with .root.Values.scheduling.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with $role.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $role.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Image and security context of a container of the job. */}}
{{- define "deepspeed-job.containerFields" -}}
image: {{ include "deepspeed-job.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{ toJson .Values.securityContext }}
{{- end }}

{{/* Environment of launcher and workers: the chart's own, then the user's, which wins. */}}
{{- define "deepspeed-job.env" -}}
{{- $values := .root.Values -}}
{{- $env := dict "workers" (toString (int64 $values.workers.count)) "gpus" (toString (int64 $values.accelerator.count)) -}}
{{- $_ := set $env "MASTER_ADDR" (include "deepspeed-job.firstHost" .root) -}}
{{- $_ := set $env "MASTER_PORT" "29500" -}}
{{- /* An elastic run writes one for each attempt. */}}
{{- if $values.deepspeed.config }}{{ $_ := set $env "DEEPSPEED_CONFIG" (printf "%s/deepspeed.json" (ternary "/job" "/opt/deepspeed-job" (not (empty $values.elastic)))) }}{{ end -}}
{{- /* An image made for GPUs asks for all of them, also where the pod has none. */}}
{{- if or (eq .role "launcher") (not $values.accelerator.count) }}{{ $_ := set $env "NVIDIA_VISIBLE_DEVICES" "void" }}{{ end -}}
{{- $env = mergeOverwrite $env $values.env -}}
env:
{{- range $name := keys $env | sortAlpha }}
{{- $value := get $env $name }}
  - name: {{ quote $name }}
{{- if kindIs "string" $value }}
    {{- /* Kubernetes expands $(NAME) and reads $$ as one dollar. */}}
    value: {{ $value | replace "$" "$$" | toJson }}
{{- else }}
    valueFrom: {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* Resources of a role; workers get their accelerators. */}}
{{- define "deepspeed-job.resources" -}}
{{- $resources := deepCopy (get .root.Values .role).resources -}}
{{- with .root.Values.accelerator -}}
{{- if and (eq $.role "workers") .count -}}
{{- $resources = mergeOverwrite $resources (dict "limits" (dict .resource (int64 .count))) -}}
{{- end -}}
{{- end -}}
{{ toJson $resources }}
{{- end }}
