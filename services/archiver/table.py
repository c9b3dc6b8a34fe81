"""The one file of an experiment: Parquet by DuckDB, one declared schema, the same bytes for the same data.

Long form, one row a sample. The declared columns hold for every file, whatever is in it: a day without a
value changes no type, whole numbers become no other type than fractions, and files of many months read as one
data set (case 82). `value` is null where a store says that there was a sample and no value, NaN where the
value was none; times are UTC.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from services.archiver.gateway import Labels, Samples

COLUMNS: Mapping[str, str] = {
    "experiment": "VARCHAR",
    "metric": "VARCHAR",
    "time": "TIMESTAMPTZ",
    "node": "VARCHAR",  # null where the series is of no single node
    "gpu": "VARCHAR",
    "step": "BIGINT",  # of the training curves: the step that was logged at this time
    "value": "DOUBLE",
    "labels": "MAP(VARCHAR, VARCHAR)",  # all of the series' own, node and gpu too
}
FORMAT = 1
ROW_GROUP = 491_520
_WHOLE = 2**53  # beyond, a float is no count any more
STEP, LOSS, NONFINITE = "sideband_train_step", "sideband_train_loss", "sideband_train_loss_nonfinite"


def connect(memory_bytes: int, scratch: Path | None = None) -> duckdb.DuckDBPyConnection:
    """One thread: the order of rows and groups is then the same each time. Nothing is fetched."""
    made = duckdb.connect(
        ":memory:",
        config={
            "threads": 1,
            "memory_limit": f"{memory_bytes >> 20}MiB",
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "temp_directory": str(scratch) if scratch else "",
        },
    )
    made.execute("SET TimeZone = 'UTC'")
    return made


class Writer:
    """Takes series in any order and any number of pieces; writes them in one order."""

    def __init__(self, directory: Path, memory_bytes: int) -> None:
        self._path = directory / "samples.csv"
        self._file = open(self._path, "w", encoding="ascii")  # noqa: SIM115  # closed by write()
        self._series: dict[str, tuple[int, str, dict[str, str]]] = {}
        self.connection = connect(memory_bytes, directory)
        self.rows = 0

    def add(self, labels: Labels, samples: Samples) -> None:
        own = {name: text for name, text in labels.items() if name != "__name__"}
        key = json.dumps([labels.get("__name__", ""), sorted(own.items())], ensure_ascii=False)
        number, _, _ = self._series.setdefault(key, (len(self._series), labels.get("__name__", ""), own))
        self._file.writelines(f"{number},{moment},{_text(value)}\n" for moment, value in samples)
        self.rows += len(samples)

    @property
    def series(self) -> list[tuple[str, dict[str, str]]]:
        """(metric, labels) of all that came."""
        return [(metric, labels) for _, metric, labels in self._series.values()]

    def load(self, experiment: str) -> None:
        """All that came as the table `archive`, in its final columns."""
        self._file.close()
        run = self.connection.execute
        run("CREATE TABLE series (id INTEGER, key VARCHAR, metric VARCHAR, labels MAP(VARCHAR, VARCHAR))")
        for key, (number, metric, labels) in self._series.items():
            pairs = sorted(labels.items())
            row = [number, key, metric, [name for name, _ in pairs], [text for _, text in pairs]]
            run("INSERT INTO series VALUES (?, ?, ?, MAP(?::VARCHAR[], ?::VARCHAR[]))", row)
        run(
            "CREATE TABLE samples AS SELECT DISTINCT * FROM read_csv("
            "$path, header = false, auto_detect = false, delim = ',', quote = '', escape = '', nullstr = '',"
            " columns = {'series': 'INTEGER', 'moment': 'BIGINT', 'value': 'DOUBLE'})",
            {"path": str(self._path)},
        )
        os.unlink(self._path)
        run("CREATE TABLE archive AS " + _ARCHIVE, {"experiment": experiment})

    def write(self, target: Path, about: Mapping[str, Any]) -> None:
        """`about` becomes the file's metadata: texts as they are, all else as JSON."""
        run = self.connection.execute
        # Else a column without a null would be declared as never null, and files would differ in it.
        run("SET disabled_optimizers = 'statistics_propagation'")
        pairs = ", ".join(f'"{name}": {_quoted(_said(value))}' for name, value in sorted(about.items()))
        candidate = target.with_name(f".{target.name}.new")
        run(
            f"COPY (SELECT {', '.join(COLUMNS)} FROM archive ORDER BY metric, key, moment, value)"
            f" TO {_quoted(str(candidate))} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP},"
            f" KV_METADATA {{{pairs}}})"
        )
        run("RESET disabled_optimizers")
        with open(candidate, "rb") as file:
            os.fsync(file.fileno())
        os.replace(candidate, target)

    def count(self) -> int:
        """Rows of the file: a sample that came twice is one."""
        found = self.connection.execute("SELECT count(*) FROM archive").fetchone()
        assert found is not None
        return int(found[0])

    def close(self) -> None:
        self._file.close()
        self.connection.close()


# A loss that was no number is stored nowhere (VictoriaMetrics drops NaN); its companion says that it was.
_ARCHIVE = f"""
    WITH rows AS (
        SELECT s.id, s.key, s.metric, s.labels, m.moment, m.value
        FROM samples m JOIN series s ON s.id = m.series
    ), lost AS (
        SELECT NULL::INTEGER AS id, replace(n.key, '{NONFINITE}', '{LOSS}') AS key, '{LOSS}' AS metric,
               n.labels, n.moment, 'NaN'::DOUBLE AS value
        FROM rows n
        WHERE n.metric = '{NONFINITE}' AND NOT EXISTS (
            SELECT 1 FROM rows l
            WHERE l.metric = '{LOSS}' AND l.labels = n.labels AND l.moment = n.moment)
    ), steps AS (
        SELECT labels['node'] AS node, moment, max(value)::BIGINT AS step
        FROM rows WHERE metric = '{STEP}' AND abs(value) <= {_WHOLE} GROUP BY ALL
    )
    SELECT $experiment::VARCHAR AS experiment, r.metric, make_timestamptz(r.moment * 1000) AS time,
           r.labels['node'] AS node, r.labels['gpu'] AS gpu,
           CASE WHEN starts_with(r.metric, 'sideband_train_') THEN t.step END AS step,
           r.value, r.labels, r.key, r.moment
    FROM (SELECT * FROM rows UNION ALL SELECT * FROM lost) r
    LEFT JOIN steps t ON t.node IS NOT DISTINCT FROM r.labels['node'] AND t.moment = r.moment
"""


def _text(value: float | None) -> str:
    return "" if value is None else repr(value)


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def about(path: Path) -> dict[str, str]:
    """A file's metadata, as text."""
    connection = connect(256 << 20)
    try:
        rows: Iterable[tuple[bytes, bytes]] = connection.execute(
            "SELECT key, value FROM parquet_kv_metadata($path)", {"path": str(path)}
        ).fetchall()
    finally:
        connection.close()
    return {key.decode(): value.decode() for key, value in rows}
