{{/* tenure.pod sets, in the object .workload of the base, what every program has values
for: .name is the program and its image, .values are the program's own, .root is the
chart's. It prints nothing. */}}
{{- define "tenure.pod" -}}
{{- $template := .workload.spec.template -}}
{{- $pod := $template.spec -}}
{{- $image := .root.Values.image -}}
{{- $ref := printf "%s/%s:%s" (trimSuffix "/" $image.registry) .name (include "tenure.tag" .root) -}}
{{- range concat (default list $pod.initContainers) $pod.containers -}}
{{-   $_ := set . "image" $ref -}}
{{-   if $image.pullPolicy }}{{ $_ := set . "imagePullPolicy" $image.pullPolicy }}{{ end -}}
{{- end -}}
{{- if $image.pullSecrets }}{{ $_ := set $pod "imagePullSecrets" $image.pullSecrets }}{{ end -}}
{{- $container := index $pod.containers 0 -}}
{{- $args := default list $container.args -}}
{{- if eq .values.logLevel "debug" }}{{ $args = append $args "--debug" }}{{ end -}}
{{- $args = concat $args .values.extraArgs -}}
{{- if $args }}{{ $_ := set $container "args" $args }}{{ end -}}
{{- $_ := set $container "resources" .values.resources -}}
{{- $_ := set $pod "priorityClassName" .values.priorityClassName -}}
{{- $_ := set $pod "nodeSelector" .values.nodeSelector -}}
{{- $_ := set $pod "tolerations" .values.tolerations -}}
{{- if .values.affinity }}{{ $_ := set $pod "affinity" .values.affinity }}{{ end -}}
{{- if .values.podAnnotations -}}
{{-   $_ := set $template.metadata "annotations" (merge (dict) .values.podAnnotations (default dict $template.metadata.annotations)) -}}
{{- end -}}
{{- end -}}

{{/* tenure.tag prints the images' tag. --set makes numbers of tags such as 20261122, and
large ones come out of a file as floats. */}}
{{- define "tenure.tag" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- if kindIs "float64" $tag }}{{ $tag = int64 $tag }}{{ end -}}
{{- toString $tag -}}
{{- end -}}

{{/* tenure.where prints the directories of the values. On OpenShift the runtime looks elsewhere than
by default. */}}
{{- define "tenure.where" -}}
{{- $d := deepCopy .Values.directories -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}
{{-   if eq $d.cniBin "/opt/cni/bin" }}{{ $_ := set $d "cniBin" "/var/lib/cni/bin" }}{{ end -}}
{{-   if eq $d.cniConf "/etc/cni/net.d" }}{{ $_ := set $d "cniConf" "/etc/kubernetes/cni/net.d" }}{{ end -}}
{{- end -}}
{{- toYaml $d -}}
{{- end -}}

{{/* tenure.directories puts the directories of the values in the place of those of the
base, in the agent's object .workload. It prints nothing. */}}
{{- define "tenure.directories" -}}
{{- $d := include "tenure.where" .root | fromYaml -}}
{{- $paths := dict "plugins" $d.cniBin "run" $d.run "state" $d.state "cni-state" $d.cniState "cni-conf" $d.cniConf "pod-resources" (printf "%s/pod-resources" $d.kubelet) -}}
{{- $pod := .workload.spec.template.spec -}}
{{- range $pod.volumes -}}
{{-   if hasKey $paths .name }}{{ $_ := set .hostPath "path" (get $paths .name) }}{{ end -}}
{{-   if and (eq .name "plugins") (not $d.cniBinMustExist) }}{{ $_ := unset .hostPath "type" }}{{ end -}}
{{- end -}}
{{- range concat $pod.initContainers $pod.containers -}}
{{-   range .volumeMounts -}}
{{-     if hasKey $paths .name }}{{ $_ := set . "mountPath" (get $paths .name) }}{{ end -}}
{{-   end -}}
{{- end -}}
{{- $_ := set (index $pod.initContainers 0) "args" (list "install" (printf "--to=%s" $d.cniBin)) -}}
{{- $_ := set (index $pod.containers 1) "args" (list "install" "--keep" (printf "--to=%s" $d.cniBin)) -}}
{{- $agent := index $pod.containers 0 -}}
{{- $args := default list $agent.args -}}
{{- if ne $d.state "/var/lib/tenure" }}{{ $args = concat $args (list (printf "--store=%s/agent/store.db" $d.state) (printf "--journal=%s/journal" $d.state)) }}{{ end -}}
{{- if ne $d.run "/run/tenure" }}{{ $args = append $args (printf "--socket=%s/agent.sock" $d.run) }}{{ end -}}
{{- if ne $d.cniState "/var/lib/cni" }}{{ $args = concat $args (list (printf "--attach-state=%s/tenure-attach" $d.cniState) (printf "--cni-results=%s/results,%s/tenure-attach/results,%s/multus/results" $d.cniState $d.cniState $d.cniState)) }}{{ end -}}
{{- if ne $d.kubelet "/var/lib/kubelet" }}{{ $args = append $args (printf "--pod-resources=%s/pod-resources/kubelet.sock" $d.kubelet) }}{{ end -}}
{{- if $args }}{{ $_ := set $agent "args" $args }}{{ end -}}
{{- end -}}

{{/* tenure.attach adds to the agent's object .workload what keeps the configuration of
the meta-plugin on the node, as the component of the base does. It prints nothing. */}}
{{- define "tenure.attach" -}}
{{- $conf := (include "tenure.where" .root | fromYaml).cniConf -}}
{{- $pod := .workload.spec.template.spec -}}
{{- $agent := index $pod.containers 0 -}}
{{- $_ := set $agent "args" (list "--cni-conf=/etc/tenure/cni/tenure.conflist" (printf "--cni-conf-dir=%s" $conf)) -}}
{{- $_ := set $agent.securityContext "capabilities" (dict "drop" (list "ALL") "add" (list "DAC_OVERRIDE")) -}}
{{- $_ := set $agent "volumeMounts" (concat $agent.volumeMounts (list (dict "name" "attach" "mountPath" "/etc/tenure/cni" "readOnly" true) (dict "name" "cni-conf" "mountPath" $conf))) -}}
{{- $_ := set $pod "volumes" (concat $pod.volumes (list (dict "name" "attach" "configMap" (dict "name" "tenure-attach")) (dict "name" "cni-conf" "hostPath" (dict "path" $conf "type" "DirectoryOrCreate")))) -}}
{{- end -}}
