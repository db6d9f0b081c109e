"""What KEDA 2.19 takes: the fields of its custom resource, and those of its scaler for JetStream.

Source: https://keda.sh/docs/2.19/reference/scaledobject-spec, https://keda.sh/docs/2.19/scalers/nats-jetstream
"""

from __future__ import annotations

from typing import Any


def fields(*required: str, **known: Any) -> dict[str, Any]:
    return {"type": "object", "properties": known, "required": [*required], "additionalProperties": False}


TEXT, COUNT, FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
SCALED_OBJECT = fields(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    apiVersion={"const": "keda.sh/v1alpha1"},
    kind={"const": "ScaledObject"},
    metadata={"type": "object", "required": ["name"]},
    spec=fields(
        "scaleTargetRef",
        "triggers",
        scaleTargetRef=fields("name", apiVersion=TEXT, kind=TEXT, name=TEXT, envSourceContainerName=TEXT),
        minReplicaCount=COUNT,
        maxReplicaCount={"type": "integer", "minimum": 1},
        idleReplicaCount=COUNT,
        pollingInterval={"type": "integer", "minimum": 1},
        cooldownPeriod=COUNT,
        initialCooldownPeriod=COUNT,
        fallback=fields(
            "failureThreshold", "replicas", failureThreshold=COUNT, replicas=COUNT, behavior=TEXT
        ),
        advanced=fields(
            horizontalPodAutoscalerConfig=fields(behavior={"type": "object"}, name=TEXT),
            restoreToOriginalReplicaCount=FLAG,
            scalingModifiers=fields(activationTarget=TEXT, formula=TEXT, metricType=TEXT, target=TEXT),
        ),
        triggers={
            "type": "array",
            "items": fields(
                "metadata",
                "type",
                type={"const": "nats-jetstream"},
                name=TEXT,
                metricType=TEXT,
                useCachedMetrics=FLAG,
                authenticationRef=fields("name", kind=TEXT, name=TEXT),
                metadata=fields(
                    *("natsServerMonitoringEndpoint", "account", "stream", "consumer", "lagThreshold"),
                    natsServerMonitoringEndpoint=TEXT,
                    account=TEXT,
                    stream=TEXT,
                    consumer=TEXT,
                    lagThreshold={"type": "string", "pattern": "^[0-9]+$"},
                    activationLagThreshold={"type": "string", "pattern": "^[0-9]+$"},
                    useHttps=TEXT,
                ),
            ),
        },
    ),
)
