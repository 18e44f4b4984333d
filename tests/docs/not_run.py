"""What no test runs of the documentation: by page, the first line of a block or a command, and why."""

from __future__ import annotations

__all__ = ["NOT_RUN"]

_CI = "what continuous integration runs: see .ci/run and tests/ground/test_tree.py"
_VENV = "the environment that every other command of the page runs in"
_PIPE = "waits for a pipe that other processes keep open; tests/cli/test_buffer.py pipes lines in"
_CLUSTER = "needs a cluster; the same command is run on this machine"

NOT_RUN: dict[str, dict[str, str]] = {
    "README.md": {"make run": _CI, "make test": _CI, "python3 -m venv tenure-env && . tenure-env/bin/activate": _VENV},
    "CONTRIBUTING.md": {"make test": _CI},
    "docs/start.md": {"python3 -m venv tenure-env && . tenure-env/bin/activate": _VENV},
    "docs/design/engine.md": {"class Log(Protocol):": "an interface, no program"},
    "docs/how-to/ingest-with-spark.md": {
        "spark-submit --packages org.apache.hadoop:hadoop-aws:3.4.1     --conf spark.hadoop.fs.s3a.endpoint=https://s3.example.com job.py": (
            _CLUSTER
        ),
        'tenure buffer quarantine s3://bucket/events 417 --group orders --reason "bucket lost it, ticket 12"': (
            "needs a buffer with 417 batches; tests/cli/test_buffer.py gives up another one"
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
    "docs/reference/command-line.md": {
        "tenure --install-completion": "changes the files of a shell that it has to find"
    },
}
