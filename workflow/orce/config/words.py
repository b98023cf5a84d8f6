"""What the schema's commonest refusals mean, in words: a message of jsonschema names the rule, not the way out."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

NAMES = {  # of a pattern of propertyNames
    "[a-z0-9]": "small letters, digits, dots and hyphens, a letter or digit first",
    "[a-z]": "small letters, digits and underscores, a letter first",
}
TRUTHS = {True: "yes, on, true", False: "no, off, false"}
NUMBERS = ("number", "integer")


def of(error) -> str | None:
    """What to say for a validation error; None where jsonschema's own message will do."""
    value = error.instance
    if "propertyNames" in error.schema_path:
        return _name(value, error)
    if "size" in [*error.absolute_path][-1:] and error.validator in ("type", "pattern") and (share := _share(value)):
        return f"{value!r} is neither a whole number nor a share; write {share}"
    if error.validator == "type" and isinstance(value, str) and {*NUMBERS} & {*_kinds(error.validator_value)}:
        return _number(value)
    if error.validator == "anyOf" and isinstance(value, str) and "source" in [*error.absolute_path][-1:]:
        return _source(value)
    return None


def _name(value, error) -> str | None:
    if isinstance(value, bool):
        return f"a name that YAML reads as {str(value).lower()} ({TRUTHS[value]}); put it in quotes"
    if not isinstance(value, str):
        return f"the name {value!r} is not text in YAML; put it in quotes"
    allowed = next(
        (words for start, words in NAMES.items() if str(error.validator_value).startswith(f"^{start}")), None
    )
    return allowed and f"{value!r} cannot be a name; a name has {allowed}"


def _kinds(value) -> list[str]:
    return [value] if isinstance(value, str) else value


def _number(text: str) -> str | None:
    found = re.fullmatch(r"([-+]?\d[\d_]*)(\.\d*)?(?:[eE]([-+]?)(\d+))?", text.strip())
    if found is None:
        return None
    whole, part, sign, power = found.groups()
    if power is None:
        return f"{text!r} is text; write {text.strip()} without quotes"
    return f"{text!r} is text in YAML; write {whole}{part if part and part != '.' else '.0'}e{sign or '+'}{power}"


def _share(value) -> Fraction | None:
    """The share that a user means by 0.5 or 50%."""
    percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value) if isinstance(value, str) else None
    number = float(percent[1]) / 100 if percent else value
    if isinstance(number, str) and re.fullmatch(r"0?\.\d+", number):
        number = float(number)
    share = Fraction(number).limit_denominator(1000) if isinstance(number, float) and 0 < number < 1 else None
    return share or None


def _source(text: str) -> str:
    if not Path(text).exists() and re.fullmatch(r"[^/. ][^/ ]*/[^/ ]+", text):
        return f"{text!r} is text; write {{hub: {text}}}, or {{path: FOLDER}} for one on this machine"
    return f"{text!r} is text; write {{path: {text}}}, or {{hub: OWNER/NAME}}"


def keys(schema: dict[str, Any], above: str = "") -> dict[str, str]:
    """Every key below the top level, with its dotted path."""
    found = {}
    for name, part in schema.get("properties", {}).items():
        if above:
            found.setdefault(name, f"{above}{name}")
        found |= {key: path for key, path in keys(part, f"{above}{name}.").items() if key not in found}
    return found
