"""The task frameworks that are measured: one module each, which its worker process imports too."""
