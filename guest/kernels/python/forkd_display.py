"""Results of evals for the Python kernel: the forms of an object, and display().

An object's forms come from its `_repr_*_` methods, from `_repr_mimebundle_`, and for some libraries from
forkd_libraries. A form that does not fit the limits is left out and named. The kernel sets `emit`.

Invariants: no library is imported. Code of the user may run here and raise; only its interrupts and the
failure of __repr__ reach the caller of display().
"""
import base64
import builtins
import json
import sys

import forkd_libraries
from forkd_values import to_json

PARTS = ("text", "html", "markdown", "svg", "latex", "javascript", "png", "jpeg", "pdf", "json", "data", "chart",
         "extra")
BINARY = frozenset(("png", "jpeg", "pdf"))
JSON = frozenset(("json", "data", "chart", "extra"))
MIME = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
    "text/latex": "latex", "application/javascript": "javascript", "text/javascript": "javascript",
    "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "application/json": "json",
}
METHODS = tuple((name, "_repr_%s_" % name) for name in
                ("html", "markdown", "svg", "latex", "javascript", "png", "jpeg", "pdf", "json"))
# The order in which forms take room.
ORDER = ("text", "png", "jpeg", "svg", "html", "markdown", "latex", "javascript", "json", "chart", "data", "pdf",
         "extra")
MAX_BYTES = 4 << 20
MAX_TEXT = 1 << 20
PLAIN = frozenset((int, float, str, bool, bytes, list, tuple, dict, set, frozenset, complex, range, type(None)))

emit = None  # emit(is_main, mask of cut forms, [(part, bytes)]), or None outside of the kernel
_kinds = {}  # type -> names of its methods


def _methods(kind):
    """The methods of a type. Those of instances do not count: objects that have any attribute would have all."""
    found = _kinds.get(kind)
    if found is None:
        names = [(part, name) for part, name in METHODS if getattr(kind, name, None) is not None]
        found = _kinds[kind] = (tuple(names), hasattr(kind, "_repr_mimebundle_"))
        if len(_kinds) > 1000:
            _kinds.clear()
    return found


def _call(function, what, *args, **named):
    """The result of a method that makes a form, or None if it fails."""
    try:
        result = function(*args, **named)
    except NotImplementedError:
        return None
    except Exception as error:
        sys.stderr.write("%s: %s failed: %s: %s\n" % ("display", what, type(error).__name__, error))
        return None
    if type(result) is tuple and len(result) == 2 and isinstance(result[1], dict):
        result = result[0]  # the second is metadata
    return result


def add_bundle(forms, bundle):
    """Adds a dict from MIME type to content. Forms that are there stay."""
    for mime, content in bundle.items():
        part = MIME.get(mime)
        if part is not None:
            forms.setdefault(part, content)
        else:
            forms.setdefault("extra", {}).setdefault(str(mime), content)


def forms_of(value):
    """Every form of a value except its text. Runs methods of its class."""
    kind = type(value)
    forms = {}
    if kind in PLAIN or isinstance(value, type):
        return forms
    methods, has_bundle = _methods(kind)
    if has_bundle:
        bundle = _call(value._repr_mimebundle_, "_repr_mimebundle_", include=None, exclude=None)
        if isinstance(bundle, dict):
            add_bundle(forms, bundle)
    for part, name in methods:
        if part not in forms:
            method = getattr(value, name, None)
            content = _call(method, name) if method is not None else None
            if content is not None:
                forms[part] = content
    forkd_libraries.add_forms(kind, value, forms, _call)
    return forms


def _encode(part, content):
    """The form as bytes, or None if it cannot be one."""
    if part in JSON:
        return to_json(content)
    if part in BINARY:
        if isinstance(content, str):
            return base64.b64decode(content)
        return bytes(content)
    if isinstance(content, (list, tuple)):
        content = "".join(map(str, content))
    return str(content).encode("utf-8", "backslashreplace")


def pack(forms):
    """(mask of cut forms, [(part, bytes)]) within the limits."""
    left = MAX_BYTES
    mask = 0
    packed = []
    for part in ORDER:
        content = forms.get(part)
        if content is None:
            continue
        try:
            data = _encode(part, content)
        except Exception as error:
            sys.stderr.write("display: cannot use %s: %s: %s\n" % (part, type(error).__name__, error))
            continue
        number = PARTS.index(part)
        if data is None or part == "text" and len(data) > MAX_TEXT:
            mask |= 1 << number
            if data is None:
                continue
            data = data[:MAX_TEXT - 3].decode("utf-8", "ignore").encode() + "…".encode()
        if len(data) > left:
            mask |= 1 << number
            continue
        left -= len(data)
        packed.append((number + 1, data))
    for part in forms.get("cut", ()):
        mask |= 1 << PARTS.index(part)
    return mask, packed


def show(forms, is_main=False):
    """Sends a result."""
    mask, packed = pack(forms)
    if emit is None or not emit(is_main, mask, packed):
        if "text" in forms:  # a thread after its eval: there is no result to add to
            print(forms["text"])


def show_main(value, text, more):
    """Sends the value of the last expression if it has other forms than text, or `more` results follow it."""
    forms = forms_of(value)
    if forms or more:
        forms["text"] = text
        show(forms, True)
        forkd_libraries.close_figure(value)


def display(*values, include=None, exclude=None, metadata=None, transient=None, display_id=None, raw=False,
            clear=False, **ignored):
    """Shows values as results of the eval, each in every form that it has."""
    for value in values:
        if raw:
            if not isinstance(value, dict):
                raise TypeError("display(raw=True) needs a dict from MIME type to content")
            forms = {}
            add_bundle(forms, value)
        elif hasattr(type(value), "_ipython_display_"):
            value._ipython_display_()
            continue
        else:
            forms = forms_of(value)
            forms.setdefault("text", repr(value))
        show(forms)
        forkd_libraries.close_figure(value)


builtins.display = display
