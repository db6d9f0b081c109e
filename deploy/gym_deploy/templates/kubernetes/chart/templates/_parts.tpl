{{- define "gym.labels" -}}
app.kubernetes.io/name: gym-runtime
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Refuses a range of replicas without any number: part (its name), of (its least and most). */ -}}
{{- define "gym.range" -}}
{{- if gt (int .of.least) (int .of.most) }}
{{- fail (printf "%s: least, %v, is greater than most, %v" .part .of.least .of.most) }}
{{- end }}
{{- end }}

{{- /* The Secret with the key of a role: root, role. */ -}}
{{- define "gym.secret" -}}
{{ get .root.Values.secrets .role | default (printf "%s-%s" .root.Release.Name .role) }}
{{- end }}

{{- /* A field of a part, or of all Pods where the part does not have it, as {"it": …}: root, part, field. */ -}}
{{- define "gym.field" -}}
{{ dict "it" (hasKey .part .field | ternary (get .part .field) (get .root.Values.pods .field)) | toJson }}
{{- end }}

{{- /* The metadata of a Pod: root, part, name. */ -}}
{{- define "gym.metadata" -}}
labels:
  app: {{ .name }}
  {{- include "gym.labels" .root | nindent 2 }}
{{- with (include "gym.field" (dict "root" .root "part" .part "field" "annotations") | fromJson).it }}
annotations: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* Where a Pod may run, and what it has of its own: root, part, name, spread (where no value says it). */ -}}
{{- define "gym.scheduling" -}}
automountServiceAccountToken: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- $given := . }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with (include "gym.field" (dict "root" $given.root "part" $given.part "field" $field) | fromJson).it }}
{{ $field }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- with (include "gym.field" (dict "root" .root "part" .part "field" "topologySpreadConstraints") | fromJson).it | default .spread }}
{{- $ours := dict "matchLabels" (dict "app" $given.name) }}
topologySpreadConstraints:
  {{- range . }}
  - {{ hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" $ours) | toJson }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "gym.pod" -}}
securityContext: {runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
{{ include "gym.scheduling" . }}
{{- end }}

{{- /* The variables of a container: root, part, those that are always there (a dictionary), first (one more), secret. */ -}}
{{- define "gym.env" -}}
{{- $env := (include "gym.field" (dict "root" .root "part" .part "field" "env") | fromJson).it }}
{{- range $name, $value := .variables }}{{ $env = prepend $env (dict "name" $name "value" $value) }}{{ end }}
{{- with .first }}{{ $env = prepend $env . }}{{ end }}
{{- with $env }}
env: {{ toJson . }}
{{- end }}
{{- $from := (include "gym.field" (dict "root" .root "part" .part "field" "envFrom") | fromJson).it }}
{{- with .secret }}{{ $from = prepend $from (dict "secretRef" (dict "name" .)) }}{{ end }}
{{- with $from }}
envFrom: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* More items of 'volumes' or 'volumeMounts': root, part, field. */ -}}
{{- define "gym.more" -}}
{{- range (include "gym.field" . | fromJson).it }}
  - {{ toJson . }}
{{- end }}
{{- end }}

{{- /* With 'sandbox', bubblewrap may make namespaces in it, and mount a /proc. */ -}}
{{- define "gym.container" -}}
image: {{ .Values.image | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  {{- if .sandbox }}
  procMount: Unmasked
  seccompProfile: {type: Unconfined}
  {{- end }}
{{- end }}

{{- /*
A Deployment of workers: root, part, kind, pool, replicas (absent where KEDA scales), more arguments, secret, sandbox.

A worker that serves has a file in GYM_HEALTH_DIR, which its event loop touches every 5 s. There is no startup probe: a
worker waits for the broker and its engine for as long as it takes, and until it serves no probe may end it. Five
minutes without a touch is a loop that hangs; after one minute the others count such a worker as gone.
*/ -}}
{{- define "gym.workers" -}}
{{- $name := printf "%s-%s" .root.Release.Name .kind -}}
{{- $pod := dict "root" .root "part" .part "name" $name -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels: {{- include "gym.labels" .root | nindent 4 }}
spec:
  {{- if hasKey . "replicas" }}
  replicas: {{ .replicas }}
  {{- end }}
  selector: {matchLabels: {app: {{ $name }}}}
  template:
    metadata: {{- include "gym.metadata" $pod | nindent 6 }}
    spec:
      {{- include "gym.pod" $pod | nindent 6 }}
      {{- if .sandbox }}
      hostUsers: false               # Kubernetes asks for it where /proc is not masked
      {{- end }}
      terminationGracePeriodSeconds: {{ add .root.Values.drainSeconds 15 }}
      containers:
        - name: {{ .kind }}
          {{- include "gym.container" (merge (dict "sandbox" .sandbox) .root) | nindent 10 }}
          args: {{ concat (list "start" .pool "--prefix" .root.Values.prefix "--wait" "inf" "--drain" (toString .root.Values.drainSeconds)) .arguments .part.arguments | toJson }}
          {{- $variables := dict "GYM_NATS_URL" "/join/broker.join" "GYM_HEALTH_DIR" "/tmp/health" "HOME" "/tmp" }}
          {{- include "gym.env" (dict "root" .root "part" .part "secret" .secret "variables" $variables) | nindent 10 }}
          readinessProbe:
            exec: {command: [sh, -c, 'test -n "$(ls /tmp/health)"']}
            periodSeconds: 5
          livenessProbe:
            exec: {command: [sh, -c, 'test -z "$(find /tmp/health -type f -mmin +5)"']}
            periodSeconds: 60
            timeoutSeconds: 10
          resources: {{ toJson .part.resources }}
          volumeMounts:
            - {name: join, mountPath: /join, readOnly: true}
            - {name: temporary, mountPath: /tmp}
            {{- include "gym.more" (dict "root" .root "part" .part "field" "volumeMounts") | nindent 10 }}
      volumes:
        - {name: join, secret: {secretName: {{ include "gym.secret" (dict "root" .root "role" .kind) }}, defaultMode: 288}}
        - {name: temporary, emptyDir: {}}
        {{- include "gym.more" (dict "root" .root "part" .part "field" "volumes") | nindent 6 }}
{{- end }}

{{- /*
What answers HTTP for the system: root, part, kind, role of its key, port, ready (path), replicas, arguments, secret,
annotations, strategy. /health says that the event loop runs.
*/ -}}
{{- define "gym.server" -}}
{{- $name := printf "%s-%s" .root.Release.Name .kind -}}
{{- $pod := dict "root" .root "part" .part "name" $name -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels: {{- include "gym.labels" .root | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector: {app: {{ $name }}}
  ports: [{name: http, port: {{ .port }}}]
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels: {{- include "gym.labels" .root | nindent 4 }}
spec:
  replicas: {{ .replicas }}
  {{- with .strategy }}
  strategy: {type: {{ . }}}
  {{- end }}
  selector: {matchLabels: {app: {{ $name }}}}
  template:
    metadata: {{- include "gym.metadata" $pod | nindent 6 }}
    spec:
      {{- include "gym.pod" $pod | nindent 6 }}
      containers:
        - name: {{ .kind }}
          {{- include "gym.container" .root | nindent 10 }}
          args: {{ concat (list .kind) .arguments (list "--host" "0.0.0.0" "--port" (toString .port) "--prefix" .root.Values.prefix) | toJson }}
          {{- $variables := dict "GYM_NATS_URL" "/join/broker.join" "HOME" "/tmp" }}
          {{- include "gym.env" (dict "root" .root "part" .part "secret" .secret "variables" $variables) | nindent 10 }}
          ports: [{name: http, containerPort: {{ .port }}}]
          startupProbe: {httpGet: {path: /health, port: http}, periodSeconds: 2, failureThreshold: 60}
          readinessProbe: {httpGet: {path: {{ .ready }}, port: http}, periodSeconds: 15, timeoutSeconds: 5}
          livenessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 20, timeoutSeconds: 10}
          resources: {{ toJson .part.resources }}
          volumeMounts:
            - {name: join, mountPath: /join, readOnly: true}
            - {name: temporary, mountPath: /tmp}
            {{- include "gym.more" (dict "root" .root "part" .part "field" "volumeMounts") | nindent 10 }}
      volumes:
        - {name: join, secret: {secretName: {{ include "gym.secret" (dict "root" .root "role" .role) }}, defaultMode: 288}}
        - {name: temporary, emptyDir: {}}
        {{- include "gym.more" (dict "root" .root "part" .part "field" "volumes") | nindent 6 }}
{{- end }}
