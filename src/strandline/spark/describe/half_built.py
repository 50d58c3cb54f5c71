"""Windows for which an operator is still to be built; `start` and others say so."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from strandline.errors import OptionError


class HalfBuilt:
    """Has the methods of an operator, which say what is missing."""

    _is: ClassVar[str]
    """What it is, in words."""
    _needs: ClassVar[str]
    """What to do with it first."""

    def start(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: there is nothing to start yet."""
        self._refuse("start")

    def checkpoint(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: there is nothing to save yet."""
        self._refuse("checkpoint")

    def availability(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: there are no results yet that could be tentative."""
        self._refuse("availability")

    def _refuse(self, method: str) -> NoReturn:
        raise OptionError(f"{method}() of {self._is}, which computes nothing by itself", todo=self._needs)
