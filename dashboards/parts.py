"""What all dashboards are made of: questions, panels on a grid, and the frame around them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

# A site chooses the source at the top of each dashboard: `sideband`, as role dashboards provisions it.
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${source}")
COLUMNS = 24

Panel = Union[timeseries.Panel, stat.Panel, table.Panel]


@dataclass(frozen=True)
class Ask:
    """One question and how its lines are called, in Grafana's words: {{node}}."""

    query: str
    legend: str = ""


@dataclass(frozen=True)
class Variable:
    """A choice at the top: the values of a label among the series of a metric."""

    name: str
    metric: str
    label: str
    many: bool = True
    title: str = ""


@dataclass
class Page:
    """A dashboard under way. Panels fill rows from left to right."""

    uid: str
    title: str
    about: str
    variables: Sequence[Variable] = ()
    hours: int = 6
    _panels: list[tuple[str, Any]] = field(default_factory=list)
    _x: int = 0
    _y: int = 0
    _row: int = 0

    def row(self, title: str) -> None:
        self._break()
        self._panels.append(("row", dashboard.Row(title).grid_pos(models.GridPos(1, COLUMNS, 0, self._y))))
        self._y += 1

    def _break(self) -> None:
        if self._x:
            self._x, self._y, self._row = 0, self._y + self._row, 0

    def _place(
        self, panel: Panel, title: str, about: str, asks: Sequence[Ask], width: int, height: int
    ) -> None:
        if self._x + width > COLUMNS:
            self._break()
        panel.title(title).description(about).datasource(SOURCE)
        panel.grid_pos(models.GridPos(height, width, self._x, self._y))
        for index, ask in enumerate(asks):
            query = prometheus.Dataquery().expr(ask.query).legend_format(ask.legend or "__auto")
            if isinstance(panel, timeseries.Panel):
                query.range().interval("1m")
            else:
                formats = prometheus_models.PromQueryFormat
                query.instant().format(
                    formats.TABLE if isinstance(panel, table.Panel) else formats.TIME_SERIES
                )
            panel.with_target(query.ref_id(chr(ord("A") + index)).datasource(SOURCE))
        self._x, self._row = self._x + width, max(self._row, height)
        self._panels.append(("panel", panel))

    def lines(
        self, title: str, about: str, *asks: Ask, unit: str = "short", width: int = 8, height: int = 8,
        stacked: bool = False, least: float | None = 0, most: float | None = None, points: bool = False,
    ) -> None:  # fmt: skip
        """Curves over time. `points` shows each sample, for what is not made every minute."""
        panel = timeseries.Panel().unit(unit).line_width(1).fill_opacity(60 if stacked else 5)
        panel.legend(common.VizLegendOptions().show_legend(True).placement(common_models.LegendPlacement.BOTTOM)
                     .display_mode(common_models.LegendDisplayMode.LIST))  # fmt: skip
        panel.tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
        # A minute that is missing is a gap, not a line drawn across it.
        panel.span_nulls(points)
        if points:
            panel.show_points(common_models.VisibilityMode.AUTO)
        if stacked:
            panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
        if least is not None:
            panel.min(least)
        if most is not None:
            panel.max(most)
        self._place(panel, title, about, asks, width, height)

    def number(
        self, title: str, about: str, ask: Ask, unit: str = "short", width: int = 4, height: int = 4,
        bad: float | None = None,
    ) -> None:  # fmt: skip
        """The figure now; red from `bad` on."""
        panel = stat.Panel().unit(unit).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        steps = [models.Threshold(value=None, color="text")]
        if bad is not None:
            steps = [models.Threshold(value=None, color="green"), models.Threshold(value=bad, color="red")]
        panel.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        self._place(panel, title, about, [ask], width, height)

    def rows(
        self, title: str, about: str, ask: Ask, unit: str = "short", width: int = 12, height: int = 8
    ) -> None:
        """The rows of an answer, the time column hidden."""
        panel = table.Panel().unit(unit)
        panel.with_transformation(
            models.DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}})
        )
        self._place(panel, title, about, [ask], width, height)

    def build(self) -> dict[str, Any]:
        made = dashboard.Dashboard(self.title).uid(self.uid).description(self.about).tags(["sideband"])
        made.readonly().timezone("utc").refresh("1m").time(f"now-{self.hours}h", "now")
        made.tooltip(models.DashboardCursorSync.CROSSHAIR)
        made.with_variable(dashboard.DatasourceVariable("source").label("source").type("prometheus"))
        for one in self.variables:
            made.with_variable(_variable(one))
        for kind, part in self._panels:
            made.with_row(part) if kind == "row" else made.with_panel(part)
        text = json.dumps(made.build(), cls=JSONEncoder)
        found: dict[str, Any] = json.loads(text)
        return found


def _variable(one: Variable) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(one.name).label(one.title or one.name).datasource(SOURCE)
    made.query(f"label_values({one.metric}, {one.label})").refresh(
        models.VariableRefresh.ON_TIME_RANGE_CHANGED
    )
    made.sort(models.VariableSort.ALPHABETICAL_ASC)
    if one.many:
        made.multi(True).include_all(True).all_value(".*")
    return made


# -- questions


def where(*matchers: str) -> str:
    return "{" + ",".join(one for one in matchers if one) + "}"


def mean(metric: str, by: str, *matchers: str) -> str:
    """Over everything that shares `by`, and over the minute: means do not compose, sums and counts do."""
    inside = where(*matchers)
    return (
        f"sum by ({by}) ({metric}:1m_sum_samples{inside}) / sum by ({by}) ({metric}:1m_count_samples{inside})"
    )


def highest(metric: str, by: str, *matchers: str) -> str:
    return f"max by ({by}) ({metric}:1m_max{where(*matchers)})"


def lowest(metric: str, by: str, *matchers: str) -> str:
    return f"min by ({by}) ({metric}:1m_min{where(*matchers)})"


def rate(counter: str, by: str, *matchers: str) -> str:
    """A second; the tier keeps what a minute added."""
    return f"sum by ({by}) ({counter}:1m_increase{where(*matchers)}) / 60"


def count_of(counter: str, by: str, *matchers: str) -> str:
    """A minute."""
    return f"sum by ({by}) ({counter}:1m_increase{where(*matchers)})"
