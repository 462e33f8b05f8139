{{- define "gpuctl.bySsh" -}}
{{- if not (hasPrefix "https://" .Values.repo) }}true{{ end }}
{{- end }}
{{- define "gpuctl.gitPort" -}}
{{- $port := "" }}
{{- if contains "://" .Values.repo }}{{ $port = regexFind ":[0-9]+$" (urlParse .Values.repo).host }}{{ end -}}
{{ $port | trimPrefix ":" | default (ternary "22" "443" (eq (include "gpuctl.bySsh" .) "true")) }}
{{- end }}
{{- define "gpuctl.memoryMib" -}}
{{- $kib := add (mul 1024 256) (mul 48 (int64 .Values.jobs)) (mul 480 (int64 .Values.nodes)) -}}
{{ mul 64 (div (add $kib (sub (mul 1024 64) 1)) (mul 1024 64)) }}
{{- end }}
