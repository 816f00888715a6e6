"""Operations for tools: metrics for Prometheus, and the OpenAPI document."""

from fakebroker.control.clusters import Clusters
from fakebroker.control.routes.openapi import document
from fakebroker.control.routes.operations import Text, operation
from fakebroker.control.stats.metrics import METRICS_TYPE, exposition


@operation("GET", "/metrics")
async def get_metrics(clusters: Clusters) -> Text:
    """Get the metrics of all clusters in Prometheus' text format."""
    return Text(await exposition(clusters), METRICS_TYPE)


@operation("GET", "/openapi.json")
async def get_document(clusters: Clusters) -> Text:
    """Get this document."""
    return Text(document(), "application/json")
