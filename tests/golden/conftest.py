"""The golden streams were written before commits named the checksum of the one before them."""

from __future__ import annotations

import pytest

from strandline.log.stream import log_state


@pytest.fixture(autouse=True)
def unlinked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes commits without that checksum, so that a story told again gives the bytes of then."""
    monkeypatch.setattr(log_state, "link_to", lambda _: "")
