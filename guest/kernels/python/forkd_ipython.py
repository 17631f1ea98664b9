"""A small `IPython.display` for machines without IPython: the classes and functions that notebooks use.

The module is made when code imports it. If IPython is installed, the import system finds that one first.
"""
import builtins
import sys
import types
from importlib.machinery import ModuleSpec

from forkd_display import display

NAMES = ("IPython", "IPython.display", "IPython.core", "IPython.core.display")


def _content(data, url, filename, binary=False):
    if url is None and isinstance(data, str) and data.startswith(("http://", "https://")):
        url, data = data, None
    if url is not None and data is None and filename is None:
        from urllib.request import urlopen
        with urlopen(url, timeout=30) as answer:
            data = answer.read()
    elif filename is not None:
        with open(filename, "rb") as file:
            data = file.read()
    if isinstance(data, bytes) and not binary:
        data = data.decode("utf-8", "replace")
    return data


class DisplayObject:
    _part = "html"

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        self.data = _content(data, url, filename)
        self.metadata = metadata or {}

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


def _class(name, part):
    return type(name, (DisplayObject,), {"_repr_%s_" % part: lambda self: self.data, "__module__": "IPython.display"})


HTML = _class("HTML", "html")
Markdown = _class("Markdown", "markdown")
SVG = _class("SVG", "svg")
Latex = _class("Latex", "latex")
Math = type("Math", (Latex,), {"_repr_latex_": lambda self: "$\\displaystyle %s$" % self.data.strip("$")})
Javascript = _class("Javascript", "javascript")


class Pretty(DisplayObject):
    def __repr__(self):
        return self.data


class JSON(DisplayObject):
    def __init__(self, data=None, url=None, filename=None, expanded=False, metadata=None, root="root", **ignored):
        import json
        if filename is not None or url is not None:
            data = _content(None, url, filename)
        self.data = json.loads(data) if isinstance(data, str) else data
        self.metadata = metadata or {}

    def _repr_json_(self):
        return self.data


class Image(DisplayObject):
    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None,
                 **ignored):
        import os
        if isinstance(data, (str, os.PathLike)) and not str(data).startswith(("http://", "https://")):
            filename, data = data, None
        self.data = _content(data, url, filename, binary=True)
        self.format = format

    def _is(self, magic, *names):
        return self.format.lower() in names if self.format else self.data.startswith(magic)

    def _repr_png_(self):
        return self.data if self._is(b"\x89PNG", "png") else None

    def _repr_jpeg_(self):
        return self.data if self._is(b"\xff\xd8", "jpeg", "jpg") else None

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"image/gif": __import__("base64").b64encode(self.data).decode()} if self._is(b"GIF8", "gif") else {}


def clear_output(wait=False):
    """Accepted: results that were sent cannot be taken back."""


def _display_names():
    return {"display": display, "clear_output": clear_output, "DisplayObject": DisplayObject, "HTML": HTML,
            "Markdown": Markdown, "SVG": SVG, "Latex": Latex, "Math": Math, "Javascript": Javascript, "JSON": JSON,
            "Image": Image, "Pretty": Pretty}


class Finder:
    """Last on sys.meta_path: asked only for modules that no other finder has."""

    def find_spec(self, name, path=None, target=None):
        if name not in NAMES:
            return None
        return ModuleSpec(name, self, is_package=name in ("IPython", "IPython.core"))

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        if module.__name__ in ("IPython", "IPython.core"):
            module.__path__ = []
            # None, as outside of a notebook: libraries would expect more of a shell than there is.
            module.get_ipython = lambda: None
            if module.__name__ == "IPython":
                module.display = __import__("importlib").import_module("IPython.display")
        else:
            module.__dict__.update(_display_names())


def install():
    sys.meta_path.append(Finder())
    builtins.display = display
