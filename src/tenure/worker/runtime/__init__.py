"""The runtime: take jobs from a backend, run their handlers, extend their leases, settle their verdicts."""
