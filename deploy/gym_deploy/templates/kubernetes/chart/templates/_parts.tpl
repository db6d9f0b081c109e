{{- define "gym.labels" -}}
app.kubernetes.io/name: gym-runtime
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gym.pod" -}}
securityContext: {runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
automountServiceAccountToken: false
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

{{- /* A Deployment of workers: root, kind, pool, replicas (absent where KEDA scales), more arguments, resources, sandbox. */ -}}
{{- define "gym.workers" -}}
{{- $name := printf "%s-%s" .root.Release.Name .kind -}}
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
    metadata:
      labels:
        app: {{ $name }}
        {{- include "gym.labels" .root | nindent 8 }}
    spec:
      {{- include "gym.pod" .root | nindent 6 }}
      {{- if .sandbox }}
      hostUsers: false               # Kubernetes asks for it where /proc is not masked
      {{- end }}
      terminationGracePeriodSeconds: {{ add .root.Values.drainSeconds 15 }}
      containers:
        - name: {{ .kind }}
          {{- include "gym.container" (merge (dict "sandbox" .sandbox) .root) | nindent 10 }}
          args: {{ concat (list "start" .pool "--prefix" .root.Values.prefix "--wait" "inf" "--drain" (toString .root.Values.drainSeconds)) .arguments | toJson }}
          env:
            - {name: GYM_NATS_URL, value: /join/broker.join}
            - {name: HOME, value: /tmp}
          {{- with .secret }}
          envFrom: [{secretRef: {name: {{ . }}}}]
          {{- end }}
          resources: {{ toJson .resources }}
          volumeMounts:
            - {name: join, mountPath: /join, readOnly: true}
            - {name: temporary, mountPath: /tmp}
      volumes:
        - {name: join, secret: {secretName: {{ $name }}, defaultMode: 288}}
        - {name: temporary, emptyDir: {}}
{{- end }}

{{- /* What answers HTTP for the system: root, kind, role of its key, port, replicas, arguments, secret, resources, annotations. */ -}}
{{- define "gym.server" -}}
{{- $name := printf "%s-%s" .root.Release.Name .kind -}}
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
  selector: {matchLabels: {app: {{ $name }}}}
  template:
    metadata:
      labels:
        app: {{ $name }}
        {{- include "gym.labels" .root | nindent 8 }}
    spec:
      {{- include "gym.pod" .root | nindent 6 }}
      containers:
        - name: {{ .kind }}
          {{- include "gym.container" .root | nindent 10 }}
          args: {{ concat (list .kind) .arguments (list "--host" "0.0.0.0" "--port" (toString .port) "--prefix" .root.Values.prefix) | toJson }}
          env:
            - {name: GYM_NATS_URL, value: /join/broker.join}
            - {name: HOME, value: /tmp}
          {{- with .secret }}
          envFrom: [{secretRef: {name: {{ . }}}}]
          {{- end }}
          ports: [{name: http, containerPort: {{ .port }}}]
          readinessProbe: {tcpSocket: {port: http}}
          resources: {{ toJson .resources }}
          volumeMounts:
            - {name: join, mountPath: /join, readOnly: true}
            - {name: temporary, mountPath: /tmp}
      volumes:
        - {name: join, secret: {secretName: {{ .root.Release.Name }}-{{ .role }}, defaultMode: 288}}
        - {name: temporary, emptyDir: {}}
{{- end }}
