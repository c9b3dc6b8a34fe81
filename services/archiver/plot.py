"""Two experiments as a picture: a panel for each quantity over the steps, as SVG, with nothing to install."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from services.archiver.compare import Curve, Side

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _BETWEEN = 960, 240, 84, 24, 84, 56
# Told apart by people who do not see colours too: by lightness, and the second is dashed.
_INKS = (("#0b5394", ""), ("#d9730d", ' stroke-dasharray="7 4"'))
_TITLES = {"loss": "loss", "throughput": "throughput", "mfu": "MFU"}


def svg(left: Side, right: Side) -> str:
    sides = (left, right)
    panels = [
        key
        for key in ("loss", "throughput", "mfu")
        if any(key in one.curves and one.curves[key].points for one in sides)
    ]
    height = _TOP + len(panels) * (_PANEL + _BETWEEN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for index, side in enumerate(sides):
        ink, dash = _INKS[index]
        y = 28 + 24 * index
        parts.append(
            f'<line x1="{_LEFT}" y1="{y - 5}" x2="{_LEFT + 36}" y2="{y - 5}" stroke="{ink}" '
            f'stroke-width="2.5"{dash}/>'
        )
        words = (
            f"{side.name}: {side.about['tenant']}, {side.about['job']}, from {str(side.about['start'])[:16]}Z"
        )
        parts.append(f'<text x="{_LEFT + 46}" y="{y}" fill="#222">{escape(words)}</text>')
    for index, key in enumerate(panels):
        curves = [one.curves.get(key, Curve(())) for one in sides]
        units = {str(one.figures["throughput_unit"]) for one in sides if one.figures["throughput_unit"]}
        title = f"throughput ({' or '.join(sorted(units))})" if key == "throughput" else _TITLES[key]
        parts += _panel(title, curves, _TOP + index * (_PANEL + _BETWEEN), percent=key == "mfu")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(title: str, curves: Sequence[Curve], top: int, percent: bool) -> list[str]:
    points = [point for curve in curves for point in curve.points]
    x0, x1 = min(point[0] for point in points), max(point[0] for point in points)
    y0, y1 = min(point[1] for point in points), max(point[3] for point in points)
    if y0 > 0 and y0 < 0.6 * y1:
        y0 = 0.0  # near enough to zero to show it
    x1 = x1 if x1 > x0 else x0 + 1
    height = y1 - y0 if y1 - y0 > 1e-9 * abs(y1) else 0.0  # flat, as far as anybody can see
    pad = height * 0.06 or abs(y1) * 0.1 or 1.0
    y0, y1 = (0.0 if y0 == 0 else y0 - pad), y1 + pad
    bottom, right = top + _PANEL, _WIDTH - _RIGHT

    def x(value: float) -> float:
        return float(_LEFT + (value - x0) / (x1 - x0) * (right - _LEFT))

    def y(value: float) -> float:
        return bottom - (value - y0) / (y1 - y0) * _PANEL

    parts = [f'<text x="{_LEFT}" y="{top - 10}" font-weight="bold" fill="#222">{escape(title)}</text>']
    for value in ticks(y0, y1, 5):
        said = f"{value * 100:g} %" if percent else f"{value:,.12g}"
        parts.append(
            f'<line x1="{_LEFT}" y1="{y(value):.1f}" x2="{right}" y2="{y(value):.1f}" stroke="#e3e3e3"/>'
        )
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" fill="#555">{said}</text>'
        )
    for value in ticks(x0, x1, 8):
        parts.append(
            f'<line x1="{x(value):.1f}" y1="{bottom}" x2="{x(value):.1f}" y2="{bottom + 5}" stroke="#888"/>'
        )
        parts.append(
            f'<text x="{x(value):.1f}" y="{bottom + 19}" text-anchor="middle" fill="#555">'
            f"{value:,.12g}</text>"
        )
    parts.append(f'<text x="{right}" y="{bottom + 36}" text-anchor="end" fill="#555">step</text>')
    parts.append(f'<line x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#888"/>')
    for index, curve in enumerate(curves):
        ink, dash = _INKS[index]
        if any(high > low for _, low, _, high in curve.points):
            edge = [(x(step), y(high)) for step, _, _, high in curve.points]
            edge += [(x(step), y(low)) for step, low, _, _ in reversed(curve.points)]
            parts.append(f'<polygon points="{_line(edge)}" fill="{ink}" fill-opacity="0.13"/>')
        middle = [(x(step), y(mean)) for step, _, mean, _ in curve.points]
        if len(middle) == 1:
            parts.append(f'<circle cx="{middle[0][0]:.1f}" cy="{middle[0][1]:.1f}" r="3" fill="{ink}"/>')
        elif middle:
            parts.append(
                f'<polyline points="{_line(middle)}" fill="none" stroke="{ink}" stroke-width="1.8"{dash}/>'
            )
    return parts


def _line(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two, at most about so many."""
    raw = (high - low) / most
    size = float(10.0 ** math.floor(math.log10(raw)))
    step: float = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    found = []
    while first * step <= high + step * 1e-9:
        found.append(round(first * step, 12))
        first += 1
    return found
