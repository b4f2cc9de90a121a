"""A request router that routes nothing: by it the directory hears from Serve, within half a second, which replicas run."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import FIFOMixin, RequestRouter

from foretype_backend.fleet.ray import running_replicas


class RunningReplicasRouter(FIFOMixin, RequestRouter):
    """See the module."""

    def update_replicas(self, replicas: list[Any]) -> None:
        super().update_replicas(replicas)
        running_replicas.LISTENERS.tell(
            self.app_name, {one.replica_id.unique_id: dict(one.replica_metadata) for one in replicas}
        )

    def on_replica_actor_died(self, replica_id: Any) -> None:
        super().on_replica_actor_died(replica_id)
        left = [one for key, one in self.curr_replicas.items() if key != replica_id]
        running_replicas.LISTENERS.tell(
            self.app_name, {one.replica_id.unique_id: dict(one.replica_metadata) for one in left}
        )

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        return [candidate_replicas]
