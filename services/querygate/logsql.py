"""Questions for lines. There is no parser of LogsQL here, so the text is read for what it may hold: a list of
pipes, strings that all readers end at the same quote, no option that lifts the bounds. The wall itself is the
store's own filter, which it puts into every part of the query; it is written here, beside the text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from . import form
from .config import Config, Identity, LogWall
from .moments import moment, nice_step, plain, span, spoken
from .plan import Fields, Plan
from .promql_tree import words
from .refusal import Refused

_TOKENS = 400
_DEFAULT_SPAN = 3600.0
# Escapes are those that a Go reader and we agree on; with any other it would end the string elsewhere.
_TOKEN = re.compile(
    r"""\s+|(?P<string>"(?:[^"\\\n]|\\["\\nrt])*"|'(?:[^'\\\n]|\\['\\nrt])*'|`[^`]*`)|(?P<word>[\w.$]+)|."""
)
# Left out: join, union (other queries), facets, field_names, field_values, block_stats, blocks_count (they
# look at blocks, not at lines). stream_context is judged by the wall.
_PIPES = words(
    "avg by copy count count_empty count_uniq cp del delete drop drop_empty_fields eval extract"
    " extract_regexp fields filter first format hash head keep last len limit math max median min mv offset"
    " order pack_json pack_logfmt quantile rename replace replace_regexp rm row_any row_max row_min skip sort"
    " stats sum top uniq uniq_values unpack_json unpack_logfmt unpack_syslog unroll where"
)


def check(text: str, wall: LogWall | None) -> None:
    depth = tokens = 0
    after_pipe = False
    previous = ""
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token.isspace():
            continue
        tokens += 1
        if tokens > _TOKENS:
            raise Refused(422, "expression", f"the query has more than {_TOKENS} words: shorten it")
        if found.group("string") is None and token in "\"'`":
            raise Refused(
                422,
                "expression",
                "a quote without end, or an escape other than \\\\ \\n \\r \\t and the quote itself",
            )
        if token == "#":
            raise Refused(422, "expression", "# starts a comment for some readers: put it into quotes")
        if after_pipe:
            _pipe(token.lower(), wall)
        if token in "([{":
            if previous.lower() == "options":
                raise Refused(422, "expression", "options(…) lifts bounds: leave it out, or quote the word")
            depth += 1
        elif token in ")]}":
            depth -= 1
        if token == "|" and depth > 0:
            raise Refused(422, "expression", "a query inside a query does not pass: ask twice")
        after_pipe = token == "|"
        previous = token


def _pipe(name: str, wall: LogWall | None) -> None:
    if name == "stream_context":
        # It returns neighbours of a line without asking the filter again, so the stream itself must be ours.
        if wall is None or (wall.stream and not wall.fields):
            return
        raise Refused(422, "expression", "stream_context would show lines of others in the same stream")
    if name not in _PIPES:
        raise Refused(
            422, "expression", f"pipe {name[:40]!r} does not exist here: {', '.join(sorted(_PIPES))} do"
        )


def wall_fields(wall: LogWall | None) -> Fields:
    if wall is None:
        return ()
    made = []
    if wall.fields:
        made.append(("extra_filters", _object(wall.fields)))
    if wall.stream:
        made.append(("extra_stream_filters", _object(wall.stream)))
    return tuple(made)


def _object(values: Mapping[str, tuple[str, ...]]) -> str:
    return json.dumps({name: one[0] if len(one) == 1 else list(one) for name, one in values.items()})


def plan_logs(config: Config, identity: Identity, path: str, values: Mapping[str, str], now: float) -> Plan:
    bounds = identity.log_bounds
    if bounds is None or not config.log_urls:
        raise Refused(403, "tier", "logs are not open to this certificate")
    text = form.needed(values, "query")
    check(text, identity.log_wall)
    end = moment("end", values["end"], now) if "end" in values else now
    start = moment("start", values["start"], now) if "start" in values else max(0.0, end - _DEFAULT_SPAN)
    if end < start:
        raise Refused(400, "time", "end lies before start: exchange them")
    width = end - start
    if width > bounds.range_seconds:
        raise Refused(
            422,
            "range",
            f"{spoken(width)} of logs are read, {spoken(bounds.range_seconds)} may be: "
            f"a range of {spoken(bounds.range_seconds)} would pass",
        )
    fields: list[tuple[str, str]] = [("query", text), ("start", plain(start)), ("end", plain(end))]
    if path.endswith("/hits"):
        step = span("step", values["step"]) if "step" in values else nice_step(width / 100)
        if width / step > bounds.buckets:
            better = nice_step(width / bounds.buckets)
            raise Refused(
                422,
                "points",
                f"range {spoken(width)} at step {spoken(step)} is {int(width / step):,} buckets, "
                f"{bounds.buckets:,} may; step {spoken(better)} would pass",
            )
        fields.append(("step", f"{plain(step)}s"))
        if "field" in values:
            if not re.fullmatch(r"[\w.:-]{1,128}", values["field"]):
                raise Refused(400, "parameter", "field: no field's name")
            fields += [
                ("field", values["field"]),
                ("fields_limit", str(form.count(values, "fields_limit", 100))),
            ]
    else:
        fields.append(("limit", str(form.count(values, "limit", bounds.lines))))
    seconds = (
        min(span("timeout", values["timeout"]), bounds.seconds) if "timeout" in values else bounds.seconds
    )
    fields.append(("timeout", f"{plain(seconds)}s"))
    return Plan(
        "logs",
        False,
        config.log_urls,
        path,
        (*fields, *wall_fields(identity.log_wall)),
        bounds.bytes,
        seconds,
    )
