"""The id of a stream: a UUID, and in any case one plain name, because the local state of operators lies under it."""

from __future__ import annotations

from strandline.errors import CorruptManifestError
from strandline.private_folder import is_plain_name


def checked_id(found: object, where: str) -> str:
    """Returns the id; raises `CorruptManifestError` if it is anything but one plain name."""
    if not isinstance(found, str) or not is_plain_name(found):
        raise CorruptManifestError(
            f"{found!r} cannot be the id of a stream: an id is one name of letters, digits, '-', '_', ':' and '.'",
            where=where,
            todo="restore stream.json from a copy; do not use a stream whose files you did not write",
        )
    return found
