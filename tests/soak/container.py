"""`Container`: a worker that isolates its leases. Its processes die and drain, and begin what was lost before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure import Invalid, TenureError
from tenure.client import Job
from tenure.contract.bodies import Gone
from tests.soak.worker import Isolation, Worker

__all__ = ["Container"]


class Container(Worker):
    """A worker whose processes are each a node of its own. The next one says hello in the place of the last, or not."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lives = 0
        self._taken: list[Job] = []
        """The jobs that this process was given, settled or not."""

    @property
    def node(self) -> str:
        return f"{self._client.node}.{self._lives}"

    def isolation(self) -> Isolation:
        return {"isolate": True, "group": self._client.node, "suspects": self._random.random() < 0.3}

    def take(self, jobs: Sequence[Job], *, node: str) -> None:
        super().take(jobs, node=node)
        self._taken += jobs

    async def handle_sound(self, jobs: Sequence[Job]) -> set[int]:
        choice = self._random.random()
        if choice < 0.06:
            return await self.settle(jobs, "return_jobs")
        if not await self._may_run(jobs):
            return set()
        if choice < 0.12:
            await self._die(jobs)
            return set()
        return await super().handle_sound(jobs)

    async def _may_run(self, jobs: Sequence[Job]) -> bool:
        """Begin a job that was lost before, if there is one; return whether that was granted. It is not repeated."""
        careful = next((job for job in jobs if job.lost), None)
        if careful is None:
            return True
        try:
            await self._client.begin(self._topic, careful.seq, lease_id=careful.lease_id or "", node=self.node)
        except TenureError:
            await self.settle(jobs, "return_jobs")
            return False
        return True

    async def _die(self, jobs: Sequence[Job]) -> None:
        """End this process and what it holds; the next one may say what became of these jobs."""
        gone, taken = self.node, self._taken
        begun = [job.seq for job in jobs if job.lost or self._random.random() < 0.5]
        self._lives, self._taken = self._lives + 1, []
        if self._random.random() < 0.5:
            return
        self.note_released(taken)
        last = Gone(node=gone, exit_code=137, begun={self._topic: begun})
        try:
            await self._client.hello([self._topic], node=self.node, group=self._client.node, gone=[last])
        except TenureError as error:
            if isinstance(error, Invalid):
                self._journal.problems.append(f"a hello is refused: {error}")
