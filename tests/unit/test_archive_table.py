"""The file: one declared schema whatever is in it, UTC, null is not NaN, the same bytes for the same data
(X1, case 82)."""

from __future__ import annotations

import datetime
import hashlib
import math
import zoneinfo
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.archiver import table
from services.archiver.gateway import Labels, Samples

Series = tuple[dict[str, str], Samples]
OWN = {"job": "slurm-77", "tenant": "alpha", "node": "node1"}
ECC = {"__name__": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL:1m_max", "gpu": "0", **OWN}
SCHEMA = [
    ("experiment", "BYTE_ARRAY", "UTF8", "OPTIONAL"),
    ("metric", "BYTE_ARRAY", "UTF8", "OPTIONAL"),
    ("time", "INT64", "TIMESTAMP_MICROS", "OPTIONAL"),
    ("node", "BYTE_ARRAY", "UTF8", "OPTIONAL"),
    ("gpu", "BYTE_ARRAY", "UTF8", "OPTIONAL"),
    ("step", "INT64", "INT_64", "OPTIONAL"),
    ("value", "DOUBLE", None, "OPTIONAL"),
    ("labels", None, "MAP", "OPTIONAL"),
    ("key_value", None, None, "REPEATED"),
    ("key", "BYTE_ARRAY", "UTF8", "REQUIRED"),
    ("value", "BYTE_ARRAY", "UTF8", "OPTIONAL"),
]


def written(directory: Path, name: str, series: Sequence[tuple[Labels, Samples]]) -> Path:
    writer = table.Writer(directory, 64 << 20)
    try:
        for labels, samples in series:
            writer.add(labels, samples)
        writer.load("run-42")
        writer.write(directory / name, {"experiment": "run-42", "gaps": []})
    finally:
        writer.close()
    return directory / name


def rows(query: str, *paths: Path) -> list[Any]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    files = "[" + ", ".join(f"'{path}'" for path in paths) + "]"
    return connection.execute(query.format(files=f"read_parquet({files})")).fetchall()


def schema(path: Path) -> list[Any]:
    query = f"SELECT name, type, converted_type, repetition_type FROM parquet_schema('{path}') OFFSET 1"
    return duckdb.connect().execute(query).fetchall()


def test_days_of_nulls_of_whole_numbers_and_of_nan_are_one_data_set(tmp_path: Path) -> None:
    """Case 82, its literal input: ecc is [null, null], then [0, 3], then [NaN, 1]."""
    day = 86_400_000
    days = [[None, None], [0.0, 3.0], [math.nan, 1.0]]
    paths = [
        written(
            tmp_path, f"d{number}.parquet", [(ECC, [(number * day, first), (number * day + 60_000, last)])]
        )
        for number, (first, last) in enumerate(days)
    ]
    assert [schema(path) for path in paths] == [SCHEMA] * 3
    values = [value for (value,) in rows("SELECT value FROM {files} ORDER BY time", *paths)]
    assert values[:4] == [None, None, 0.0, 3.0]
    assert math.isnan(values[4])
    assert values[5] == 1.0
    counted = rows("SELECT count(*), count(value), count(*) FILTER (isnan(value)) FROM {files}", *paths)
    assert counted == [(6, 4, 1)]  # null is no value, NaN is one that is none


def test_the_night_on_which_an_hour_comes_twice_has_two_hours(tmp_path: Path) -> None:
    """Case 82: two o'clock thirty, twice, are two moments an hour apart in the file."""
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    local = [datetime.datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1)]
    moments = [round(one.timestamp() * 1000) for one in local]
    path = written(tmp_path, "night.parquet", [(ECC, [(moment, 1.0) for moment in moments])])
    said = rows("SELECT strftime(time, '%c'), epoch_ms(time) FROM {files} ORDER BY time", path)
    assert said == [("2026-10-25 00:30:00", moments[0]), ("2026-10-25 01:30:00", moments[1])]
    logical = duckdb.connect().execute(
        f"SELECT logical_type FROM parquet_schema('{path}') WHERE name = 'time'"
    )
    assert "isAdjustedToUTC=1" in str(logical.fetchall())


def test_columns_are_what_is_declared(tmp_path: Path) -> None:
    path = written(tmp_path, "x.parquet", [(ECC, [(1, 2.0)])])
    described = rows("DESCRIBE SELECT * FROM {files}", path)
    assert {name: kind for name, kind, *_ in described} == {
        name: kind.replace("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE") for name, kind in table.COLUMNS.items()
    }
    assert list(table.COLUMNS) == [row[0] for row in described]
    compressions = duckdb.connect().execute(f"SELECT DISTINCT compression FROM parquet_metadata('{path}')")
    assert compressions.fetchall() == [("ZSTD",)]


def test_a_loss_that_was_no_number_is_a_row_again_with_its_step(tmp_path: Path) -> None:
    """VictoriaMetrics keeps no NaN; the companion that curves sends says at which step it was."""
    series: list[Series] = [
        ({"__name__": table.STEP, **OWN}, [(1000, 1.0), (2000, 2.0), (3000, 3.0)]),
        ({"__name__": table.LOSS, **OWN}, [(1000, 2.5), (3000, math.inf)]),
        ({"__name__": table.NONFINITE, **OWN}, [(2000, 1.0), (3000, 1.0)]),
        ({"__name__": "sideband_job_gpus:1m_max", **OWN}, [(2000, 8.0)]),
    ]
    path = written(tmp_path, "x.parquet", series)
    found = rows(f"SELECT step, value FROM {{files}} WHERE metric = '{table.LOSS}' ORDER BY time", path)
    assert found[0] == (1, 2.5)
    assert found[1][0] == 2
    assert math.isnan(found[1][1])
    assert found[2] == (3, math.inf)  # infinity is kept by the store: it is there once
    assert len(found) == 3
    # Only curves have steps: what happens to be measured in the same millisecond has none.
    assert rows("SELECT step FROM {files} WHERE metric = 'sideband_job_gpus:1m_max'", path) == [(None,)]


def test_metadata_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, "x.parquet", [(ECC, [(1, 2.0)])])
    assert table.about(path) == {"experiment": "run-42", "gaps": "[]"}


VALUES = st.one_of(
    st.none(), st.floats(allow_nan=True, allow_infinity=True), st.integers(0, 2**53).map(float)
)
NAMES = st.sampled_from(["a", "b:1m_max", table.LOSS, table.NONFINITE, table.STEP, "it's", "größe"])
LABELS = st.dictionaries(st.sampled_from(["node", "gpu", "name", "x"]), st.text(max_size=6), max_size=3)
WHOLE = st.lists(
    st.tuples(NAMES, LABELS, st.dictionaries(st.integers(0, 10**13), VALUES, min_size=1, max_size=5)),
    min_size=1, max_size=5, unique_by=lambda one: (one[0], tuple(sorted(one[1].items()))),
)  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(whole=WHOLE, data=st.data())
def test_the_same_data_give_the_same_bytes_in_whatever_pieces_they_come(
    whole: list[Any], data: st.DataObject, tmp_path: Path
) -> None:
    series = [({"__name__": name, **labels}, sorted(samples.items())) for name, labels, samples in whole]
    pieces = []
    for labels, samples in series:
        cut = data.draw(st.integers(0, len(samples)))
        pieces += [(labels, samples[:cut]), (labels, samples[cut:]), (labels, samples[:1])]  # one comes twice
    first = written(tmp_path, "one.parquet", series).read_bytes()
    second = written(tmp_path, "two.parquet", data.draw(st.permutations(pieces))).read_bytes()
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()
    assert schema(tmp_path / "one.parquet") == SCHEMA


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples=st.dictionaries(st.integers(0, 10**13), VALUES, min_size=1, max_size=20))
def test_every_sample_is_read_back_as_it_was(samples: dict[int, float | None], tmp_path: Path) -> None:
    path = written(tmp_path, "x.parquet", [(ECC, sorted(samples.items()))])
    found = dict(rows("SELECT epoch_ms(time), value FROM {files}", path))
    assert found.keys() == samples.keys()
    for moment, value in samples.items():
        assert repr(found[moment]) == repr(value)  # NaN too, and -0.0


def test_a_broken_run_leaves_the_file_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "x.parquet", [(ECC, [(1, 2.0)])])
    before = path.read_bytes()
    monkeypatch.setattr(table, "_quoted", lambda text: "no text")
    with pytest.raises(duckdb.Error):
        written(tmp_path, "x.parquet", [(ECC, [(1, 3.0)])])
    assert path.read_bytes() == before
