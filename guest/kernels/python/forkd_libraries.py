"""Forms of objects of libraries that have no `_repr_*_` method for them: figures of matplotlib, and the columns
of a pandas table.

Invariant: a library is used only if the code of the user has imported it.
"""
import io
import math
import sys

MAX_CELLS = 200000


def add_forms(kind, value, forms, call):
    """Adds the forms of a value whose class comes from such a library."""
    library = kind.__module__.partition(".")[0] if isinstance(kind.__module__, str) else ""
    if library == "pandas":
        pandas = sys.modules.get("pandas")
        if pandas is not None and isinstance(value, pandas.DataFrame):
            if value.size > MAX_CELLS:
                forms["cut"] = ("data",)
            else:
                data = call(columns, "columns of the table", value)
                if data is not None:
                    forms["data"] = data
    else:
        figure = sys.modules.get("matplotlib.figure")
        if figure is not None and isinstance(value, figure.Figure):
            _add_figure(value, forms, call)


def columns(table):
    """A dict from the name of each column to the list of its values. A repeated name gets a number."""
    result = {}
    for index, name in enumerate(table.columns):
        name = str(name)
        if name in result:
            name = "%s.%d" % (name, index)
        result[name] = [_cell(cell) for cell in table.iloc[:, index].tolist()]
    return result


def _cell(cell):
    if cell is None or isinstance(cell, (bool, int, str)):
        return cell
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if type(cell).__name__ in ("NaTType", "NAType"):
        return None
    if hasattr(cell, "isoformat"):
        return cell.isoformat()
    return str(cell)


def _add_figure(figure, forms, call):
    import forkd_charts
    png = call(_png, "image of the figure", figure)
    if png is not None:
        forms["png"] = png
    chart = call(forkd_charts.chart_of, "data of the figure", figure)
    if chart is not None:
        forms["chart"] = chart


def _png(figure):
    stream = io.BytesIO()
    # A figure that was made without pyplot has no canvas that can draw.
    if not hasattr(figure.canvas, "print_png"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        FigureCanvasAgg(figure)
    figure.savefig(stream, format="png", bbox_inches="tight")
    return stream.getvalue()


def _managers():
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return helpers.Gcf.figs if helpers is not None else {}


def has_figures():
    return len(_managers()) > 0


def take_figures():
    """The figures of pyplot that are open, which are then closed."""
    managers = list(_managers().values())
    figures = [manager.canvas.figure for manager in managers]
    if managers:
        sys.modules["matplotlib._pylab_helpers"].Gcf.destroy_all()
    return figures


def close_figure(figure):
    """Closes a value that was shown if it is a figure, so that the end of the eval does not show it again."""
    for number, manager in list(_managers().items()):
        if manager.canvas.figure is figure:
            sys.modules["matplotlib._pylab_helpers"].Gcf.destroy(number)


class Hook:
    """Changes modules when they are imported. First on sys.meta_path.

    pyplot draws into memory and its show() displays: there is no screen. IPython's display() is the kernel's.
    """

    def __init__(self, show_figures, display):
        self._show_figures = show_figures
        self._display = display
        self._changes = {"matplotlib.pyplot": self._change_pyplot,
                         "IPython.core.display_functions": self._change_display}

    def find_spec(self, name, path=None, target=None):
        change = self._changes.get(name)
        if change is None:
            return None
        from importlib.machinery import PathFinder
        spec = PathFinder.find_spec(name, path, target)
        loader = getattr(spec, "loader", None)
        if loader is not None:
            execute = loader.exec_module
            loader.exec_module = lambda module: change(module, execute)
        return spec

    def _change_pyplot(self, module, execute):
        matplotlib = sys.modules["matplotlib"]
        try:
            chosen = dict.__getitem__(matplotlib.rcParams, "backend")
        except KeyError:
            chosen = None
        if not isinstance(chosen, str):
            matplotlib.rcParams["backend"] = "agg"
        execute(module)
        module.show = self._show_figures
        module.Figure.show = self._display

    def _change_display(self, module, execute):
        execute(module)
        module.display = self._display
