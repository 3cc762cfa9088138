{{/*
Volumes and mounts: what every pod of the job has, and the user's data.
*/}}

{{/* Mounts that launcher and workers have, on top of the user's data. */}}
{{- define "deepspeed-job.mounts" -}}
- {name: files, mountPath: /opt/deepspeed-job, readOnly: true}
- {name: job, mountPath: /job}
- {name: shm, mountPath: /dev/shm}
{{- with include "deepspeed-job.codeMounts" . }}{{ . | nindent 0 }}{{ end }}
{{- range (include "deepspeed-job.dataMounts" . | fromJsonArray) }}
- {{ omit . "claim" | toJson }}
{{- end }}
{{- range $i, $host := .Values.hostPaths }}
- {{ dict "name" (printf "host-%d" $i) "mountPath" $host.mountPath "readOnly" ($host.readOnly | default false) | toJson }}
{{- end }}
{{- range $i, $path := keys .Values.files | sortAlpha }}
- {{ dict "name" "own-files" "mountPath" $path "subPath" (printf "file-%d" $i) "readOnly" true | toJson }}
{{- end }}
{{- range .Values.extraVolumeMounts }}
- {{ toJson . }}
{{- end }}
{{- end }}

{{/* Volumes that launcher and workers have. */}}
{{- define "deepspeed-job.volumes" -}}
- name: files
  projected:
    defaultMode: 0555
    sources:
      - configMap: {name: {{ .root.Release.Name }}-scripts}
      - configMap:
          name: {{ include "deepspeed-job.runConfigName" .root }}
          items:
            - {key: run.json, path: run.json}
            {{- if .root.Values.deepspeed.config }}
            - {key: deepspeed.json, path: deepspeed.json}
            {{- end }}
      {{- if eq .role "workers" }}
      # A host name may be the node's.
      - downwardAPI: {items: [{path: pod-name, fieldRef: {fieldPath: metadata.name}}]}
      {{- end }}
      {{- if and (eq .role "workers") (eq .root.Values.mode "launcher") }}
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
{{- with include "deepspeed-job.codeVolumes" . }}{{ . | nindent 0 }}{{ end }}
{{- range $name, $claim := (include "deepspeed-job.claims" .root | fromJson) }}
- {name: {{ $name }}, persistentVolumeClaim: {claimName: {{ $claim }}}}
{{- end }}
{{- range $i, $host := .root.Values.hostPaths }}
- {{ dict "name" (printf "host-%d" $i) "hostPath" (pick $host "path" "type") | toJson }}
{{- end }}
{{- with .root.Values.files }}
- name: own-files
  configMap:
    name: {{ include "deepspeed-job.runConfigName" $.root }}
    defaultMode: 0444
    items:
      {{- range $i, $path := keys . | sortAlpha }}
      {{- $file := get $.root.Values.files $path }}
      {{- $executable := and (kindIs "map" $file) $file.executable }}
      - {key: file-{{ $i }}, path: file-{{ $i }}, mode: {{ ternary 0555 0444 (not (empty $executable)) }}}
      {{- end }}
{{- end }}
{{- range .root.Values.extraVolumes }}
- {{ toJson . }}
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

{{/* Text of an entry of `files`, which is a text or a map with `content`. */}}
{{- define "deepspeed-job.fileText" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ .content }}{{ end -}}
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
