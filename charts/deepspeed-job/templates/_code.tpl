{{/*
The job's code, fetched by an init container of every pod: from Git, where all pods get the same commit, or by rsync.
*/}}

{{/* Folder of the code; empty where the values have none. */}}
{{- define "deepspeed-job.codePath" -}}
{{- with .Values.code }}{{ .mountPath | default "/code" }}{{ end -}}
{{- end }}

{{/* The Secret that opens the source, if there is one. */}}
{{- define "deepspeed-job.codeSecret" -}}
{{- with .Values.code }}{{ (.git | default .rsync | default dict).secret | default "" }}{{ end -}}
{{- end }}

{{/* Working directory of launcher and workers; empty for the image's own. */}}
{{- define "deepspeed-job.workingDir" -}}
{{ .Values.run.workingDir | default (include "deepspeed-job.codePath" .) }}
{{- end }}

{{/* What fetch-code reads, as JSON. */}}
{{- define "deepspeed-job.codeSettings" -}}
{{- $settings := dict "CODE_PATH" (include "deepspeed-job.codePath" .) "CODE_SECRET" (include "deepspeed-job.codeSecret" .) -}}
{{- with .Values.code.git -}}
{{- $_ := set $settings "CODE_GIT" .repository -}}
{{- $_ := set $settings "CODE_REF" (.ref | default "HEAD") -}}
{{- /* 0 means all, so it is no empty value here. */}}
{{- $_ := set $settings "CODE_DEPTH" (ternary 1 .depth (kindIs "invalid" .depth) | int64 | toString) -}}
{{- $_ := set $settings "CODE_SUBMODULES" (.submodules | default false | toString) -}}
{{- $_ := set $settings "CODE_SUBPATH" (.subPath | default "") -}}
{{- end -}}
{{- with .Values.code.rsync }}{{ $_ := set $settings "CODE_RSYNC" .source }}{{ end -}}
{{ toJson $settings }}
{{- end }}

{{/* For which Job a commit is chosen: a pod that replaces the launcher's takes the same one. An entry of `env`. */}}
{{- define "deepspeed-job.jobUid" -}}
{{- if .Values.code -}}
- name: JOB_UID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']"}}
{{- end -}}
{{- end }}

{{/* The init container, as a list item; call with (dict "root" $ "role" "launcher"). */}}
{{- define "deepspeed-job.codeContainer" -}}
{{- if .root.Values.code -}}
{{- $code := .root.Values.code -}}
{{- $resources := dict "requests" (dict "cpu" "100m" "memory" "64Mi") "limits" (dict "memory" "1Gi") -}}
- name: code
  image: {{ $code.image | default (include "deepspeed-job.image" .root) | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  securityContext: {{ toJson .root.Values.securityContext }}
  command: [sh, /opt/deepspeed-job/fetch-code]
  env:
    {{- range $name, $text := include "deepspeed-job.codeSettings" .root | fromJson }}
    - {name: {{ $name }}, value: {{ include "deepspeed-job.literal" $text }}}
    {{- end }}
    {{- if eq .role "launcher" }}
    {{- include "deepspeed-job.jobUid" .root | nindent 4 }}
    {{- end }}
    - {name: NVIDIA_VISIBLE_DEVICES, value: void}
    {{- /* The way out of the cluster is the same for all of the job. */}}
    {{- range $name := list "http_proxy" "https_proxy" "no_proxy" "HTTP_PROXY" "HTTPS_PROXY" "NO_PROXY" }}
    {{- with get $.root.Values.env $name }}
    {{- include "deepspeed-job.envEntry" (dict "name" $name "value" .) | nindent 4 }}
    {{- end }}
    {{- end }}
  resources: {{ $code.resources | default $resources | toJson }}
  volumeMounts:
    - {name: fetch, mountPath: /opt/deepspeed-job, readOnly: true}
    {{- if include "deepspeed-job.codeUser" .root }}
    # ssh refuses a user without an entry, and an image that only fetches need not know the job's.
    - {name: fetch, mountPath: /etc/passwd, subPath: passwd, readOnly: true}
    {{- end }}
    {{- if include "deepspeed-job.codeSecret" .root }}
    - {name: code-secret, mountPath: /opt/code-secret, readOnly: true}
    {{- end }}
    - {name: job, mountPath: /job}
    - {name: code, mountPath: {{ include "deepspeed-job.codePath" .root | toJson }}}
{{- end -}}
{{- end }}

{{/* /etc/passwd of the init container; empty where the values do not say who it runs as. */}}
{{- define "deepspeed-job.codeUser" -}}
{{- $security := merge dict .Values.securityContext .Values.podSecurityContext -}}
{{- $user := $security.runAsUser -}}
{{- if and .Values.code (not (kindIs "invalid" $user)) -}}
root:x:0:0:root:/root:/bin/sh
{{- if $user }}
job:x:{{ int64 $user }}:{{ $security.runAsGroup | default 0 | int64 }}:job:/tmp:/bin/sh
{{- end }}
{{ end -}}
{{- end }}

{{/* Where launcher and workers have the code, as list items. */}}
{{- define "deepspeed-job.codeMounts" -}}
{{- with .Values.code -}}
- {{ merge (dict "name" "code" "mountPath" (include "deepspeed-job.codePath" $)) (pick (.git | default dict) "subPath") | toJson }}
{{- end -}}
{{- end }}

{{/* Volumes of the code, as list items; call with (dict "root" $ "role" "launcher"). */}}
{{- define "deepspeed-job.codeVolumes" -}}
{{- if .root.Values.code -}}
- {name: code, emptyDir: {}}
- name: fetch
  projected:
    defaultMode: 0555
    sources:
      - configMap: {name: {{ .root.Release.Name }}-scripts, items: [{key: fetch-code, path: fetch-code}]}
      {{- if include "deepspeed-job.codeUser" .root }}
      - configMap: {name: {{ include "deepspeed-job.runConfigName" .root }}, items: [{key: passwd, path: passwd, mode: 0444}]}
      {{- end }}
      {{- if and .root.Values.code.git (eq .root.Values.mode "launcher") }}
      # Not optional for workers: they are held until the launcher's pod has chosen.
      - secret:
          name: {{ .root.Release.Name }}-ssh
          items: [{key: commit, path: commit, mode: 0444}]
          optional: {{ eq .role "launcher" }}
      {{- end }}
{{- with include "deepspeed-job.codeSecret" .root }}
- {name: code-secret, secret: {secretName: {{ . }}, defaultMode: 0444}}
{{- end }}
{{- end -}}
{{- end }}

{{/* What a schema cannot refuse, as a JSON list of texts. */}}
{{- define "deepspeed-job.codeProblems" -}}
{{- $problems := list -}}
{{- with .Values.code -}}
{{- $key := ternary "code.git" "code.rsync" (not (empty .git)) -}}
{{- $source := (.git | default dict).repository | default (.rsync | default dict).source | default "" -}}
{{- if and .git .rsync -}}
{{- $problems = append $problems "`code.git` and `code.rsync` exclude each other: keep one of them" -}}
{{- else if not (or .git .rsync) -}}
{{- $problems = append $problems "`code` names no source: give `code.git.repository` or `code.rsync.source`" -}}
{{- end -}}
{{- if regexMatch "^https?://[^/]*@" $source -}}
{{- $problems = append $problems "`code.git.repository` holds a user or a password, which all who may read the job could see: put `username` and `password` into a Secret, and name it in `code.git.secret`" -}}
{{- end -}}
{{- $ssh := or (regexMatch "^(ssh|git\\+ssh|ssh\\+git)://" $source) (regexMatch "^[^:/]+:([^:/]|/[^/]|$)" $source) -}}
{{- if and $ssh (not (include "deepspeed-job.codeSecret" $)) -}}
{{- $problems = append $problems (printf "`%s.secret` is missing: %s is reached by ssh, which needs a Secret with `ssh-privatekey` and `known_hosts`" $key $source) -}}
{{- end -}}
{{- if and .git (eq $.Values.mode "direct") (not (regexMatch "^[0-9a-f]{40}$" (.git.ref | default ""))) -}}
{{- $problems = append $problems (printf "`code.git.ref` is %q: `mode: direct` has no launcher to choose one commit for all workers, so give all 40 digits of a commit" (.git.ref | default "HEAD")) -}}
{{- end -}}
{{- $path := include "deepspeed-job.codePath" $ | clean -}}
{{- range list "/job" "/opt/deepspeed-job" "/opt/code-secret" "/dev/shm" -}}
{{- if or (eq $path .) (hasPrefix (printf "%s/" .) $path) -}}
{{- $problems = append $problems (printf "`code.mountPath` %q lies in %s, which the chart uses: choose another folder" $path .) -}}
{{- end -}}
{{- end -}}
{{- range (include "deepspeed-job.dataMounts" $ | fromJsonArray) -}}
{{- if eq $path (clean .mountPath) -}}
{{- $problems = append $problems (printf "`code.mountPath` %q is a mount of `data` or `persistence` too: choose another folder" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson $problems }}
{{- end }}
