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
{{- $host := printf "%s-worker-0.%s" .root.Release.Name .root.Release.Name -}}
{{- $env := dict "workers" (toString (int64 $values.workers.count)) "gpus" (toString (int64 $values.accelerator.count)) -}}
{{- $_ := set $env "MASTER_ADDR" $host -}}
{{- $_ := set $env "MASTER_PORT" "29500" -}}
{{- if $values.deepspeed.config }}{{ $_ := set $env "DEEPSPEED_CONFIG" "/opt/deepspeed-job/deepspeed.json" }}{{ end -}}
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

{{/* Mounts that launcher and workers have, on top of the user's data. */}}
{{- define "deepspeed-job.mounts" -}}
- {name: files, mountPath: /opt/deepspeed-job, readOnly: true}
- {name: job, mountPath: /job}
- {name: shm, mountPath: /dev/shm}
{{- range (include "deepspeed-job.dataMounts" . | fromJsonArray) }}
- {{ omit . "claim" | toJson }}
{{- end }}
{{- end }}

{{/* Volumes that launcher and workers have. */}}
{{- define "deepspeed-job.volumes" -}}
- name: files
  projected:
    defaultMode: 0555
    sources:
      - configMap: {name: {{ .root.Release.Name }}-scripts}
      - configMap: {name: {{ include "deepspeed-job.runConfigName" .root }}}
      {{- if eq .role "workers" }}
      # Named and not optional: a worker is held until the key and the launcher's address exist.
      - secret:
          name: {{ include "deepspeed-job.keySecretName" .root }}
          items: [{key: ssh-privatekey, path: ssh-privatekey, mode: 0444}]
      - secret:
          name: {{ .root.Release.Name }}-ssh
          items: [{key: launcher, path: launcher, mode: 0444}]
      {{- end }}
# What a pod makes for itself: keys, hostfile, ssh settings. In memory, since a key is among it.
- {name: job, emptyDir: {medium: Memory}}
- {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ .root.Values.shm.size }}}}
{{- range $name, $claim := (include "deepspeed-job.claims" .root | fromJson) }}
- {name: {{ $name }}, persistentVolumeClaim: {claimName: {{ $claim }}}}
{{- end }}
{{- end }}

{{/*
Every mount of `data` and `persistence` as a JSON list of {name, claim, mountPath, subPath, readOnly}. A claim is one volume, however
often it is mounted; the volume of the first is named data-0, and so on.
*/}}
{{- define "deepspeed-job.dataMounts" -}}
{{- $mounts := list -}}
{{- $names := dict -}}
{{- $entries := .Values.data -}}
{{- range $key, $entry := .Values.persistence -}}
{{- $entries = append $entries (merge (dict "claim" (printf "%s-%s" $.Release.Name $key)) (pick $entry "mountPath" "subPath")) -}}
{{- end -}}
{{- range $entries -}}
{{- if not (hasKey $names .claim) }}{{ $_ := set $names .claim (printf "data-%d" (len $names)) }}{{ end -}}
{{- $mounts = append $mounts (merge (dict "name" (get $names .claim)) (pick . "claim" "mountPath" "subPath" "readOnly")) -}}
{{- end -}}
{{ toJson $mounts }}
{{- end }}

{{/* Volume name to claim name, as JSON. */}}
{{- define "deepspeed-job.claims" -}}
{{- $claims := dict -}}
{{- range (include "deepspeed-job.dataMounts" . | fromJsonArray) }}{{ $_ := set $claims .name .claim }}{{ end -}}
{{ toJson $claims }}
{{- end }}

{{/* The mount that holds tensorboard.logdir, as JSON with the longest mountPath; empty where there is none. */}}
{{- define "deepspeed-job.logdirMount" -}}
{{- $found := dict -}}
{{- $logdir := printf "%s/" (clean .Values.tensorboard.logdir) -}}
{{- range (include "deepspeed-job.dataMounts" . | fromJsonArray) -}}
{{- $path := printf "%s/" (clean .mountPath | trimSuffix "/") -}}
{{- if and (hasPrefix $path $logdir) (gt (len $path) (len (get $found "mountPath" | default "")) ) }}{{ $found = . }}{{ end -}}
{{- end -}}
{{- with $found }}{{ toJson . }}{{ end -}}
{{- end }}
