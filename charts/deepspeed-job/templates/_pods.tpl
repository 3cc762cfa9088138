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

{{/* Where launcher and workers may run, and which namespaces of the node they share. */}}
{{- define "deepspeed-job.placement" -}}
{{- $role := get .root.Values .role -}}
{{- $scheduling := .root.Values.scheduling -}}
terminationGracePeriodSeconds: {{ int64 .root.Values.run.gracePeriod }}
{{- with $scheduling.schedulerName }}
schedulerName: {{ quote . }}
{{- end }}
{{- with $scheduling.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with $scheduling.preemptionPolicy }}
preemptionPolicy: {{ . }}
{{- end }}
{{- with $role.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $role.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with include "deepspeed-job.affinity" . | fromJson }}
affinity: {{ toJson . }}
{{- end }}
{{- with $role.topologySpreadConstraints }}
topologySpreadConstraints: {{ toJson . }}
{{- end }}
{{- if eq .role "workers" }}
{{- with $role.serviceAccountName }}
serviceAccountName: {{ quote . }}
{{- end }}
{{- with .root.Values.host }}
{{- if .network }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- if .ipc }}
hostIPC: true
{{- end }}
{{- if .pid }}
hostPID: true
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Affinity of a role as JSON: its own, and for the workers `scheduling.colocate`. */}}
{{- define "deepspeed-job.affinity" -}}
{{- $affinity := (get .root.Values .role).affinity | default dict -}}
{{- if eq .role "workers" -}}
{{- with .root.Values.scheduling.colocate -}}
{{- $labels := include "deepspeed-job.selectorLabels" (dict "root" $.root "component" "worker") | fromYaml -}}
{{- $term := dict "topologyKey" .topologyKey "labelSelector" (dict "matchLabels" $labels) -}}
{{- if .required -}}
{{- $affinity = merge (dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term))) $affinity -}}
{{- else -}}
{{- $weighted := dict "weight" 100 "podAffinityTerm" $term -}}
{{- $affinity = merge (dict "podAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list $weighted))) $affinity -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson $affinity }}
{{- end }}

{{/* Annotations of a role's pods as JSON; call with (dict "root" $ "role" "workers"). */}}
{{- define "deepspeed-job.podAnnotations" -}}
{{- $annotations := (get .root.Values .role).annotations | default dict -}}
{{- if eq .role "workers" -}}
{{- with .root.Values.rdma -}}{{- $annotations = merge (dict) $annotations (.annotations | default dict) -}}{{- end -}}
{{- with .root.Values.scheduling.gang -}}
{{- if eq .type "volcano" -}}{{- $annotations = merge (dict "scheduling.k8s.io/group-name" $.root.Release.Name) $annotations -}}{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson $annotations }}
{{- end }}

{{/* Image and security context of a container of the job. A worker may have to lock memory for RDMA. */}}
{{- define "deepspeed-job.containerFields" -}}
{{- $values := .root.Values -}}
{{- $security := deepCopy $values.securityContext -}}
{{- if and (eq .role "workers") $values.rdma -}}
{{- $capabilities := $security.capabilities | default dict -}}
{{- $_ := set $security "capabilities" (merge (dict "add" (append ($capabilities.add | default list) "IPC_LOCK" | uniq)) $capabilities) -}}
{{- end -}}
image: {{ include "deepspeed-job.image" .root | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
securityContext: {{ toJson $security }}
{{- end }}

{{/* A text that Kubernetes would expand, in `env`, `command` and `args`: it replaces $(NAME), and reads $$ as one dollar. */}}
{{- define "deepspeed-job.literal" -}}
{{ . | replace "$" "$$" | toJson }}
{{- end }}

{{/* An entry of `env`, as a list item; call with (dict "name" NAME "value" V), where V is a text or a reference. */}}
{{- define "deepspeed-job.envEntry" -}}
- name: {{ quote .name }}
{{- if kindIs "string" .value }}
  value: {{ include "deepspeed-job.literal" .value }}
{{- else }}
  valueFrom: {{ toJson .value }}
{{- end }}
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
{{- /* The volume is root's, in which Git would not work. */}}
{{- if $values.code }}{{ $_ := merge $env (dict "GIT_CONFIG_COUNT" "1" "GIT_CONFIG_KEY_0" "safe.directory" "GIT_CONFIG_VALUE_0" "*") }}{{ end -}}
{{- $env = mergeOverwrite $env $values.env ((get $values .role).env | default dict) -}}
{{- with $values.envFrom }}
envFrom: {{ toJson . }}
{{- end }}
env:
{{- range $name := keys $env | sortAlpha }}
  {{- include "deepspeed-job.envEntry" (dict "name" $name "value" (get $env $name)) | nindent 2 }}
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
{{- with .root.Values.rdma -}}
{{- if eq $.role "workers" -}}
{{- $resources = mergeOverwrite $resources (dict "limits" (dict .resource (int64 (.count | default 1)))) -}}
{{- end -}}
{{- end -}}
{{ toJson $resources }}
{{- end }}
