#!/bin/bash
# Make the keys of the system once, and store them as Secrets: make-secrets.sh RELEASE [BROKERS]
#   helm install RELEASE ./chart
# RELEASE-broker is for the brokers only; each RELEASE-ROLE has the join file of one role.
set -eu
release=${1:?make-secrets.sh RELEASE [BROKERS]} brokers=${2:-1}
keys=$(mktemp -d)
trap 'rm -rf "$keys"' EXIT
nodes=$(seq -s, -f "$release-broker-%.0f.$release-broker" 0 $((brokers - 1)))
where=(--host "$release-broker")
[ "$brokers" = 1 ] || where=(--nodes "$nodes" --node "${nodes%%,*}")
gym-runtime broker --keys-only --dir "$keys" --prefix @PREFIX@ "${where[@]}"
kubectl create secret generic "$release-broker" \
  --from-file="$keys/ca.pem" --from-file="$keys/ca.key" \
  --from-file="$keys/client.seed" --from-file="$keys/agent.seed" \
  --from-file="$keys/resource.seed" --from-file="$keys/model.seed"
for role in client agent resource model; do
  kubectl create secret generic "$release-$role" --from-file=broker.join="$keys/join/$role.join"
done
