"""Frozen dataclasses <-> TOML: unknown keys fail with the nearest right one, and every value with its place."""

import dataclasses
import difflib
import json
import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from bertkit.errors import BertkitError

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of this file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BertkitError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BertkitError(f"{path} is no valid TOML: {str(error).splitlines()[0]}") from None


def parse_assignment(assignment: str, example: str) -> tuple[str, Any]:
    """`key=value` as it stands after --set; the value is TOML where it is TOML, and a string where it is not."""
    key, equals, text = (part.strip() for part in assignment.partition("="))
    if not equals or not key:
        raise BertkitError(f"--set takes key=value, such as {example}, not {assignment!r}")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text


def set_value(plain: dict[str, Any], assignment: str) -> None:
    """Apply `table.key=value` (`stages.0.key=value` in a list of tables)."""
    key, value = parse_assignment(assignment, "optimizer.learning_rate=1e-3")
    *path, last = key.split(".")
    place: Any = plain
    for part in path:
        place = _enter(place, part, key)
    if not isinstance(place, dict):
        raise BertkitError(f"--set {key}: there is no such table; name one key of it")
    place[last] = value


def _enter(place: Any, part: str, key: str) -> Any:
    if isinstance(place, list):
        if not part.isdigit() or int(part) >= len(place):
            raise BertkitError(f"--set {key}: {part!r} is no number below {len(place)}, the length of that list")
        return place[int(part)]
    if not isinstance(place, dict):
        raise BertkitError(f"--set {key}: {part!r} lies inside a value, not inside a table")
    return place.setdefault(part, {})


def to_dataclass(cls: type[T], plain: Mapping[str, Any], where: str = "", owner: str = "the recipe") -> T:
    """Build the dataclass from a table of `owner`; what it does not know it refuses by name."""
    hints = get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in plain:
        if key not in names:
            raise BertkitError(unknown_key(f"{where}{key}", key, names, f"{owner} has an unknown key"))
    values = {key: _convert(hints[key], value, f"{where}{key}") for key, value in plain.items()}
    return cls(**values)


def unknown_key(shown: str, key: str, names: Sequence[str], said: str = "the recipe has an unknown key") -> str:
    """The line for a key, or another name, that nobody knows, with the nearest right one."""
    near = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
    return f"{said} {shown!r}; {hint}"


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _convert(next(arg for arg in args if arg is not type(None)), value, where)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise BertkitError(f"{where} is a table of keys, not {value!r}")
        return to_dataclass(hint, value, f"{where}.")  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(value, list):
            raise BertkitError(f"{where} is a list, not {value!r}")
        return tuple(_convert(args[0], item, f"{where}.{index}") for index, item in enumerate(value))
    if origin is Literal:
        hint = str
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = dict if origin is dict else hint
    if hint is Any:
        return value
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        named = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", dict: "a table"}
        raise BertkitError(f"{where} takes {named.get(expected, expected.__name__)}, not {value!r}")
    return {key: _convert(args[1], item, f"{where}.{key}") for key, item in value.items()} if origin is dict else value


def to_plain(value: Any) -> Any:
    """A dataclass as tables; keys whose value is None are left out, as TOML has no None."""
    if dataclasses.is_dataclass(value):
        pairs = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: to_plain(item) for name, item in pairs.items() if item is not None}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def write_toml(plain: Mapping[str, Any]) -> str:
    """Tables as TOML text, plain values first."""
    lines = [f"{key} = {_inline(value)}" for key, value in plain.items() if not _is_table(value)]
    for key, value in plain.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *(f"{name} = {_inline(item)}" for name, item in value.items())]
        elif _is_table(value):
            for table in value:
                lines += ["", f"[[{key}]]", *(f"{name} = {_inline(item)}" for name, item in table.items())]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _key(name: str) -> str:
    """Plain where TOML allows it, else quoted."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # JSON's strings are TOML's
    return repr(value).lower() if isinstance(value, bool) else repr(value)
