"""What looks like a stream and cannot be an input of an operator: whoever tries is told what can."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from strandline.errors import OptionError


class NoInput:
    """Has the methods by which operators are built on a stream, which say what to do instead."""

    _is: ClassVar[str]
    """What it is, in words."""
    instead: ClassVar[str]
    """What to do."""

    def window(self, *_: Any, **__: Any) -> NoReturn:
        """Refused, as all of these."""
        self._refuse("window")

    def join(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        self._refuse("join")

    def apply(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        self._refuse("apply")

    def where(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        self._refuse("where")

    def select(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        self._refuse("select")

    def _refuse(self, method: str) -> NoReturn:
        raise OptionError(f"{method}() of {self._is}: operators do not take them in by themselves", todo=self.instead)
