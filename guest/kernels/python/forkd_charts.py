"""The data of a matplotlib figure: a dict by chart type (docs/spec/kernel-protocol.md). Loaded with the first
figure that is shown.
"""
import math
import re
import sys

MAX_POINTS = 100000
UNIT = re.compile(r"\(([^)]*)\)|\[([^\]]*)\]")


def chart_of(figure):
    """The chart of a figure with one pair of axes, a superchart of several; None without data."""
    axes = [each for each in figure.get_axes() if each.has_data()]
    if not axes:
        return None
    if len(axes) == 1:
        return _chart(axes[0])
    suptitle = getattr(figure, "_suptitle", None)
    return {
        "type": "superchart",
        "title": suptitle.get_text() if suptitle is not None else None,
        "elements": [_chart(each) for each in axes],
    }


def _chart(axes):
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge
    artists = list(axes.lines) + list(axes.collections) + list(axes.patches)
    kinds = {type(artist) for artist in artists}
    only = lambda *allowed: all(issubclass(kind, allowed) for kind in kinds)  # noqa: E731
    guides = [line for line in axes.lines if _is_guide(line)]
    others = [artist for artist in artists if artist not in guides]
    boxes = _boxes(axes)
    if boxes:
        return dict(_labelled(axes, "box_and_whisker"), elements=boxes)
    if kinds and only(Line2D):
        return dict(_scaled(axes, "line"), elements=_lines(axes, guides))
    if others and all(isinstance(each, PathCollection) for each in others):
        return dict(_scaled(axes, "scatter"), elements=_scatters(axes))
    if others and all(isinstance(each, Wedge) for each in others):
        return {"type": "pie", "title": _text(axes.get_title()), "elements": _wedges(axes)}
    bars = [each for each in axes.containers if hasattr(each, "patches")]
    if bars and all(isinstance(each, (Rectangle, Line2D)) for each in others):
        return _bars(axes, bars)
    if any(isinstance(each, PathPatch) for each in others) or not others:
        return dict(_labelled(axes, "unknown"), elements=[])
    return dict(_labelled(axes, "unknown"), elements=[])


def _text(text):
    return text or None


def _number(value):
    """A finite number as float or int, a date as ISO text, anything else as text."""
    if hasattr(value, "tolist"):
        kind = getattr(value, "dtype", None)
        if kind is not None and kind.kind == "M":
            return str(value.astype("datetime64[s]"))
        value = value.tolist()
    if isinstance(value, bool) or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return None if value is None else str(value)


def _round(value, digits=10):
    """Without the noise of floating point: only so many significant digits."""
    value = float(value)
    return float("%.*g" % (digits, value)) if math.isfinite(value) else None


def _unit(label):
    match = UNIT.search(label or "")
    return (match.group(1) or match.group(2)) if match else None


def _labelled(axes, kind, swapped=False):
    x, y = _text(axes.get_xlabel()), _text(axes.get_ylabel())
    if swapped:
        x, y = y, x
    return {"type": kind, "title": _text(axes.get_title()), "x_label": x, "y_label": y, "x_unit": _unit(x),
            "y_unit": _unit(y)}


def _scaled(axes, kind):
    chart = _labelled(axes, kind)
    for letter, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        labels = [label.get_text() for label in axis.get_ticklabels()]
        ticks = [_round(tick) for tick in axis.get_ticklocs()]
        scale = axis.get_scale()
        converter = type(getattr(axis, "converter", None) or getattr(axis, "_converter", None)).__name__
        if "Date" in converter:
            num2date = sys.modules["matplotlib.dates"].num2date
            ticks = [num2date(tick).isoformat() for tick in axis.get_ticklocs()]
            scale = "datetime"
        elif scale == "linear" and "Category" in converter:
            scale = "categorical"
        chart[letter + "_ticks"] = ticks
        chart[letter + "_tick_labels"] = labels
        chart[letter + "_scale"] = scale
    return chart


def _is_guide(line):
    """A straight line along an axis, as grids and axhline() draw."""
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def _label(artist, prefix, name):
    label = str(artist.get_label())
    number = label[len(prefix):]
    return "%s %s" % (name, number) if label.startswith(prefix) and number.isdigit() else label


def _points(xs, ys):
    return [[_number(x), _number(y)] for x, y in zip(list(xs)[:MAX_POINTS], list(ys)[:MAX_POINTS])]


def _lines(axes, guides):
    return [{"label": _label(line, "_child", "Line"), "points": _points(line.get_xdata(), line.get_ydata())}
            for line in axes.lines if line not in guides or len(axes.lines) == 1]


def _scatters(axes):
    return [{"label": _label(each, "_child", "Group"), "points": _points(*zip(*each.get_offsets()))
             if len(each.get_offsets()) else []} for each in axes.collections]


def _wedges(axes):
    return [{"label": str(wedge.get_label()), "angle": abs(_round(wedge.theta2 - wedge.theta1, 6)),
             "radius": _number(wedge.r)} for wedge in axes.patches]


def _bars(axes, containers):
    swapped = all(getattr(each, "orientation", "vertical") == "horizontal" for each in containers)
    axis = axes.yaxis if swapped else axes.xaxis
    elements = []
    for container in containers:
        group = _label(container, "_container", "Group")
        for nth, bar in enumerate(container.patches):
            low, size = (bar.get_y(), bar.get_height()) if swapped else (bar.get_x(), bar.get_width())
            value = bar.get_width() if swapped else bar.get_height()
            elements.append({"label": _tick_label(axis, low + size / 2, nth), "group": group,
                             "value": _number(value)})
    return dict(_labelled(axes, "bar", swapped), elements=elements)


def _tick_label(axis, middle, nth):
    """The label of the tick nearest to the middle of a bar; without one, the position."""
    ticks = list(axis.get_ticklocs())
    labels = [label.get_text() for label in axis.get_ticklabels()]
    near = [label for tick, label in zip(ticks, labels) if abs(tick - middle) < 0.5 and label]
    if near:
        return near[0]
    return axis.get_major_formatter()(middle, nth) or str(_round(middle))


def _boxes(axes):
    """The boxes of boxplot(): each is a rectangle of five or more corners, with a median line inside it."""
    from matplotlib.patches import PathPatch
    outlines = []
    for line in axes.lines:
        x, y = _floats(line.get_xdata()), _floats(line.get_ydata())
        if len(x) == 5 and (x[0], y[0]) == (x[4], y[4]):
            outlines.append((x, y))
    for patch in axes.patches:
        if isinstance(patch, PathPatch):
            corners = patch.get_path().vertices
            outlines.append((_floats(corners[:, 0]), _floats(corners[:, 1])))
    found = []
    for x, y in outlines:
        box = _box(axes, min(x), max(x), min(y), max(y))
        if box is None:
            return []
        found.append(box)
    return found


def _floats(values):
    try:
        return [_round(value) for value in values]
    except (TypeError, ValueError):
        return []


def _box(axes, left, right, low, high):
    lines = [(_floats(line.get_xdata()), _floats(line.get_ydata())) for line in axes.lines]
    for axis, swapped in ((axes.xaxis, False), (axes.yaxis, True)):
        if swapped:
            left, right, low, high = low, high, left, right
            lines = [(y, x) for x, y in lines]
        middle = (left + right) / 2
        near = lambda a, b: abs(a - b) <= 1e-6 * max(1.0, abs(a), abs(b))  # noqa: E731
        median = [y[0] for x, y in lines if len(y) == 2 and near(y[0], y[1]) and near(min(x), left)
                  and near(max(x), right) and low <= y[0] <= high]
        ends = [y for x, y in lines if len(y) == 2 and near(x[0], middle) and near(x[1], middle)]
        lower = [min(y) for y in ends if near(max(y), low)]
        upper = [max(y) for y in ends if near(min(y), high)]
        if not median or not lower or not upper:
            continue
        outliers = [value for x, y in lines if not (len(x) == 2 and len(y) == 2) and len(x) != 5
                    and x and all(near(each, middle) for each in x) for value in y]
        labels = [label.get_text() for label in axis.get_ticklabels()]
        ticks = list(axis.get_ticklocs())
        label = next((text for tick, text in zip(ticks, labels) if near(tick, middle)), "")
        return {"label": label, "min": lower[0], "first_quartile": low, "median": median[0],
                "third_quartile": high, "max": upper[0], "outliers": outliers}
    return None
