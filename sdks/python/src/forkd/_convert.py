"""Objects of the wire → models. The one place that knows how names and units differ.

A field of a model has the name of the wire, except for times: `x_ms` and `x_secs` are `x_secs` (float seconds),
and `x_unix` is `x` (a `datetime` in UTC). Keys inside `labels`, `env`, `details` and JSON values are untouched.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, Mapping, Tuple, Type, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import advice, make_error

M = TypeVar("M", bound="Model")
Reader = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Model:
    """An answer of the daemon. `raw` is the object as it was on the wire, with fields that this version lacks."""

    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)


def to_model(model: Type[M], value: Any) -> M:
    """Converts an object of the wire. Ignores fields that the model does not have; they stay in `raw`."""
    if not isinstance(value, dict):
        raise wrong_answer(f"it is not a {model.__name__}")
    fields: Dict[str, Any] = {"raw": value}
    for name, keys, read, default in _readers(model):
        for key, convert in keys:
            if value.get(key) is not None:
                try:
                    fields[name] = convert(read(value[key]))
                except (TypeError, ValueError, OverflowError, OSError) as error:
                    raise wrong_answer(f"{model.__name__}.{key} has a wrong type") from error
                break
        else:
            if default is dataclasses.MISSING:
                raise wrong_answer(f"{model.__name__} lacks {keys[0][0]}")
    return model(**fields)


def to_models(model: Type[M], value: Any) -> List[M]:
    """Converts a list of objects of the wire."""
    if not isinstance(value, list):
        raise wrong_answer(f"it is not a list of {model.__name__}")
    return [to_model(model, each) for each in value]


def wrong_answer(why: str) -> Exception:
    """The error for an answer that does not have the form of the contract."""
    return make_error(
        "internal",
        f"The daemon's answer cannot be used: {why}",
        remedy=advice("Use the same version of forkd for the client and the daemon."),
    )


def wire_keys(model: Type[Model]) -> Dict[str, Tuple[str, ...]]:
    """The names on the wire that each field can come from."""
    return {name: tuple(key for key, _ in keys) for name, keys, _, _ in _readers(model)}


_Row = Tuple[str, List[Tuple[str, Reader]], Reader, Any]
_cache: Dict[Type[Model], List[_Row]] = {}


def _readers(model: Type[Model]) -> List[_Row]:
    rows = _cache.get(model)
    if rows is None:
        hints = get_type_hints(model)
        rows = _cache[model] = [
            (field.name, _keys(field, hints[field.name]), _reader(hints[field.name]), _default(field))
            for field in dataclasses.fields(model)
            if field.name != "raw"
        ]
    return rows


def _default(field: Any) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory


def _keys(field: Any, hint: Any) -> List[Tuple[str, Reader]]:
    name = str(field.metadata.get("wire", field.name))
    if _plain(hint) is datetime:
        return [(f"{name}_unix", _same)]
    if name.endswith("_secs"):
        return [(name, _same), (f"{name[:-5]}_ms", _thousandth)]
    return [(name, _same)]


def _same(value: Any) -> Any:
    return value


def _thousandth(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: round(each / 1000, 9) for key, each in value.items()}
    return round(value / 1000, 9)


def _plain(hint: Any) -> Any:
    """The type without Optional."""
    if get_origin(hint) is Union:
        parts = [each for each in get_args(hint) if each is not type(None)]
        return parts[0] if len(parts) == 1 else Any
    return hint


def _reader(hint: Any) -> Reader:
    plain = _plain(hint)
    if plain is datetime:
        return lambda value: datetime.fromtimestamp(value, timezone.utc)
    if isinstance(plain, type) and issubclass(plain, Model):
        return lambda value: to_model(plain, value)
    origin = get_origin(plain)
    if origin is list:
        (inner,) = get_args(plain)
        read = _reader(inner)
        return lambda value: [read(each) for each in _checked(value, list)]
    if origin is dict:
        return lambda value: _checked(value, dict)
    if plain in (str, bool):
        return lambda value: _checked(value, plain)
    if plain in (int, float):
        return lambda value: plain(_number(value))
    return _same


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind}")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("expected a number")
    return value
