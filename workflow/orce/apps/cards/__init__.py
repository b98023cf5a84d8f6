"""Cards of a model and of data, for the hub."""

from typing import NamedTuple


class Base(NamedTuple):
    """The model under an adapter, on the hub."""

    hub: str
    revision: str | None
