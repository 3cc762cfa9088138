{{/*
Names. Every object is NAME or NAME-something, where NAME is the release name: templates/validate.yaml refuses the names that would not fit.
*/}}

{{/* Labels of every object; call with (dict "root" $ "component" "worker"), the component may be left out. */}}
{{- define "deepspeed-job.labels" -}}
{{ include "deepspeed-job.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The user's annotations of an object, with those that are its own; call with (dict "root" $ "own" (dict …)). Empty if there are none. */}}
{{- define "deepspeed-job.annotations" -}}
{{- with merge (dict) (.own | default dict) .root.Values.annotations }}
annotations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Labels of a role's pods; call with (dict "root" $ "role" "workers" "component" "worker"). */}}
{{- define "deepspeed-job.podLabels" -}}
{{ include "deepspeed-job.hostLabels" . }}
{{- if eq .role "workers" }}
{{- with .root.Values.scheduling.gang }}
{{- if eq .type "coscheduling" }}
scheduling.x-k8s.io/pod-group: {{ quote $.root.Release.Name }}
{{- end }}
{{- end }}
{{- end }}
{{- /* A mesh's sidecar would keep the Job from ending, and breaks ssh. */}}
{{- range $key, $value := merge (dict) ((get .root.Values .role).labels | default dict) (dict "sidecar.istio.io/inject" "false") }}
{{ $key }}: {{ quote $value }}
{{- end }}
{{- end }}

{{/* Labels that select the pods of one component. */}}
{{- define "deepspeed-job.selectorLabels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ quote .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* Labels of launcher and worker pods: these are the hosts that the headless service names. */}}
{{- define "deepspeed-job.hostLabels" -}}
{{ include "deepspeed-job.selectorLabels" . }}
deepspeed-job/host: "true"
deepspeed-job/run: {{ include "deepspeed-job.runHash" .root | quote }}
{{- end }}

{{/*
Hash of the values that define the run, 8 hex digits. It is a part of the Job's name, since a Job's pod template is immutable: the same
values give the same Job, so nothing happens; other values give a new one. What is beside the run does not define it: TensorBoard, the size
of a claim, `run.suspend`, the autoscaler, labels and annotations of objects, network policy, disruption budget, more objects.
A later chart version may add keys, but no default for them: a default would alter the hash, and with it start every job again.
*/}}
{{- define "deepspeed-job.runHash" -}}
{{- $run := omit .Values "global" "tensorboard" "persistence" "elastic" "labels" "annotations" "extraObjects" "networkPolicy" "podDisruptionBudget" "service" -}}
{{- $_ := set $run "run" (omit .Values.run "suspend") -}}
{{- with .Values.elastic -}}
{{- $_ := set $run "elastic" (omit . "autoscaling") -}}
{{- end -}}
{{- $_ := set $run "logdir" (include "deepspeed-job.watchedLogdir" .) -}}
{{- range $name, $claim := .Values.persistence -}}
{{- $_ := set $run (printf "persistence/%s" $name) (pick $claim "mountPath" "subPath") -}}
{{- end -}}
{{- toJson $run | sha256sum | trunc 8 -}}
{{- end }}

{{/* Name of the Job of this run. */}}
{{- define "deepspeed-job.launcherJobName" -}}
{{ .Release.Name }}-launcher-{{ include "deepspeed-job.runHash" . }}
{{- end }}

{{/* Name of the Job of this run in mode direct, whose pods are the workers. */}}
{{- define "deepspeed-job.directJobName" -}}
{{ .Release.Name }}-worker-{{ include "deepspeed-job.runHash" . }}
{{- end }}

{{/* Name of the host of rank 0. */}}
{{- define "deepspeed-job.firstHost" -}}
{{- if eq .Values.mode "direct" -}}
{{ include "deepspeed-job.directJobName" . }}-0.{{ .Release.Name }}
{{- else -}}
{{ .Release.Name }}-worker-0.{{ .Release.Name }}
{{- end -}}
{{- end }}

{{/* Name of the ConfigMap with what defines this run. */}}
{{- define "deepspeed-job.runConfigName" -}}
{{ .Release.Name }}-run-{{ include "deepspeed-job.runHash" . }}
{{- end }}

{{/* Name of the service account of the launcher's pod. */}}
{{- define "deepspeed-job.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (printf "%s-launcher" .Release.Name) }}
{{- end }}

{{/* Host name of the workers without their number. */}}
{{- define "deepspeed-job.hostStem" -}}
{{ include "deepspeed-job.firstHost" . | splitList "." | first | trimSuffix "-0" }}
{{- end }}

{{/* Name of the Secret that has the ssh key. */}}
{{- define "deepspeed-job.keySecretName" -}}
{{ .Values.ssh.existingSecret | default (printf "%s-ssh" .Release.Name) }}
{{- end }}

{{/* Ranks of one worker. */}}
{{- define "deepspeed-job.slots" -}}
{{ .Values.workers.slots | default (max 1 (int64 .Values.accelerator.count)) | int64 }}
{{- end }}

{{/* The folder whose event files are a sign of life; empty where none is asked for, since TensorBoard does not define a run. */}}
{{- define "deepspeed-job.watchedLogdir" -}}
{{- if .Values.run.stallTimeout }}{{ .Values.tensorboard.logdir }}{{ end -}}
{{- end }}

{{/* `elastic` as JSON with its default, {} if the run is not elastic. */}}
{{- define "deepspeed-job.elastic" -}}
{{- with .Values.elastic -}}
{{ dict "min" (int64 .min) "max" (int64 .max) "patience" (int64 (.patience | default 60)) | toJson }}
{{- else -}}
{}
{{- end -}}
{{- end }}

{{/* Annotations of a Job as JSON: its workers and their device. */}}
{{- define "deepspeed-job.sizeAnnotations" -}}
{{- $size := dict "deepspeed-job/workers" (toString (int64 .Values.workers.count)) -}}
{{- if .Values.accelerator.count }}{{ $_ := set $size "deepspeed-job/accelerator" .Values.accelerator.resource }}{{ end -}}
{{ toJson $size }}
{{- end }}
