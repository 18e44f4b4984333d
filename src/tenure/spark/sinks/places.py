"""A place under its two names: the driver's store URL, and Spark's path."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tenure.errors import Invalid
from tenure.objects.store import ObjectStore, open_store

__all__ = ["Place", "plain_path"]

_SPARK_SCHEMES = {"s3": "s3a", "s3a": "s3a", "gs": "gs"}


def plain_path(where: str | Path) -> Path:
    """Return the absolute path without ``..``: table logs hold whole paths, and readers compare them as text.

    What stands in front of a ``..`` is resolved, as a link there may lead elsewhere; the rest is left as it is given.
    """
    path = Path(where).expanduser().absolute()
    if ".." not in path.parts:
        return path
    behind = len(path.parts) - path.parts[::-1].index("..")
    return Path(*path.parts[:behind]).resolve().joinpath(*path.parts[behind:])


class Place:
    """A directory that driver and executors reach: a path, ``file://``, ``s3://``, ``s3a://`` or ``gs://``.

    A local path must be the same directory on every machine of the cluster. Raises Invalid for anything else.
    """

    def __init__(self, where: str | Path) -> None:
        text = str(where)
        parts = urlsplit(text)
        if not parts.scheme or text.startswith("/"):
            if not text or "\0" in text:
                raise Invalid("a table needs a path or a URL")
            parts = urlsplit("file://" + quote(str(plain_path(text))))
        if parts.scheme != "file" and parts.scheme not in _SPARK_SCHEMES:
            raise Invalid(f"no table can be at {text!r}: use a path, file://, s3://, s3a:// or gs://")
        self.local: Path | None = None
        if parts.scheme == "file":
            if not parts.path.startswith("/"):
                raise Invalid(f"a file URL has three slashes and a whole path, file:///a/b, not {text!r}")
            self.local = plain_path(unquote(parts.path))
            parts = parts._replace(path=quote(str(self.local), safe="/="))
            self.spark_url = f"file://{parts.path.rstrip('/')}"
        else:
            key = unquote(parts.path).rstrip("/")
            if ".." in key.split("/"):
                raise Invalid(f"an object store has no directory above another: write {key!r} without ..")
            self.spark_url = f"{_SPARK_SCHEMES[parts.scheme]}://{parts.netloc}{quote(key, safe='/=')}"
        self.url = parts._replace(scheme="s3" if parts.scheme == "s3a" else parts.scheme).geturl()
        self._options = dict(parse_qsl(parts.query))
        self.store()  # refuse a bad URL here, before any call

    def store(self) -> ObjectStore:
        """Return the store whose keys are relative to the place. Raises Invalid for a URL it does not know."""
        return open_store(self.url)

    def spark_path(self, key: str) -> str:
        """Return the path of a key for Spark: not quoted."""
        return f"{unquote(self.spark_url)}/{key}"

    def spark_url_of(self, key: str) -> str:
        """Return the URL of a key as Spark's logs spell it."""
        return f"{self.spark_url}/{quote(key, safe='/=')}"

    def key_of(self, spark_url: str) -> str:
        """Return the key of a file that a log names. Raises Invalid where it is elsewhere: a table that was moved."""
        if not spark_url.startswith(self.spark_url + "/"):
            raise Invalid(
                f"the table's log names {spark_url}, which is not below {self.spark_url}: Spark's logs hold whole "
                "paths, so a table is read where it was written",
                code="table_moved",
            )
        return unquote(spark_url[len(self.spark_url) + 1 :])

    def hadoop(self) -> dict[str, str]:
        """Return the URL's options as settings of Spark's S3 client."""
        if not self.spark_url.startswith("s3a:") or not self._options:
            return {}
        conf = {"spark.hadoop.fs.s3a.path.style.access": "true"}
        if endpoint := self._options.get("endpoint"):
            conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
            conf["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
        if region := self._options.get("region"):
            conf["spark.hadoop.fs.s3a.endpoint.region"] = region
        return conf
