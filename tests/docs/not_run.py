"""What no test runs of the documentation: by page, a command or the first line of a block, and why."""

from __future__ import annotations

__all__ = ["NOT_RUN"]

_CI = "what continuous integration runs: see .ci/run and tests/ground/test_tree.py"
_CLUSTER = "needs a cluster; the same is run on this machine"
_BUNDLE = "needs a cluster; tests/spark/test_bundle_cluster.py runs it on one"
_PIPE = "waits for a pipe that other processes keep open; tests/cli/test_buffer.py pipes lines in"
_MAKE_ENVIRONMENT = "python3 -m venv tenure-env && . tenure-env/bin/activate"
_ENVIRONMENT = "the environment that every other command of the page runs in"

NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {"make run": _CI, "make test": _CI},
    "CONTRIBUTING.md": {"make quick": "a part of the tests, run by make test"},
    "docs/start.md": {_MAKE_ENVIRONMENT: _ENVIRONMENT},
    "docs/tour.md": {_MAKE_ENVIRONMENT: _ENVIRONMENT},
    "docs/design/engine.md": {"class Log(Protocol):": "an interface, no program"},
    "docs/how-to/ingest-with-spark.md": {
        "spark-submit --packages org.apache.hadoop:hadoop-aws:3.4.1 "
        "--conf spark.hadoop.fs.s3a.endpoint=https://s3.example.com job.py": _CLUSTER,
        "spark-submit --master spark://host:7077 --py-files tenure-bundle.zip job.py": _BUNDLE,
        "tenure pipeline run pipeline.toml --master spark://host:7077 "
        "--conf spark.submit.pyFiles=tenure-bundle.zip": _BUNDLE,
        'tenure buffer quarantine s3://bucket/events 417 --group orders --reason "bucket lost it, ticket 12"': (
            "needs a buffer with 417 batches; tests/cli/test_buffer.py gives up another one"
        ),
        "tenure buffer set s3://bucket/events --retain-for 7d": (
            "needs the bucket in a shell; tests/cli/test_buffer.py sets another one"
        ),
    },
    "docs/how-to/many-small-producers.md": {
        "mkfifo /run/readings && exec 3<>/run/readings": _PIPE,
        "tenure buffer produce s3://my-bucket/readings < /run/readings": _PIPE,
    },
    "docs/how-to/merge-by-key.md": {
        "CREATE VIEW users_now AS SELECT * FROM users WHERE op <> 'delete'": "a view over a table of the reader's own"
    },
    "docs/how-to/move-from-celery.md": {"# Celery": "the other program, for comparison"},
    "docs/how-to/run-a-pipeline.md": {
        "tenure pipeline run pipeline.toml --follow": "goes on; tests/spark/test_pipeline_signals.py stops one",
        "tenure pipeline run pipeline.toml --master spark://host:7077 --conf spark.executor.memory=4g": _CLUSTER,
        "tenure pipeline run pipeline.toml --remote sc://host:15002": _CLUSTER,
    },
    "docs/how-to/timers-on-redis.md": {"from redis.asyncio import RedisCluster": "needs a cluster of Redis"},
    "docs/reference/command-line.md": {
        "tenure --install-completion": "changes the start files of the shell around it; tests/cli/test_completion.py"
    },
    "docs/reference/spark-sinks.md": {"import duckdb": "another program that reads the table"},
    "docs/reference/timers.md": {
        "from redis.asyncio import Redis": "waits for ever; the same calls run in memory below"
    },
}
