"""Numbers and durations as people read them, in what the program prints and in what errors say."""

from __future__ import annotations

_UNITS = (
    (86_400_000_000, "day"),
    (3_600_000_000, "hour"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "us"),
)


def plural(number: int, noun: str) -> str:
    """Returns a number with its noun: 1 block, 2 blocks, 1,234 tuples.

    >>> plural(1, "partition"), plural(0, "file"), plural(2000, "open window")
    ('1 partition', '0 files', '2,000 open windows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def exact_duration(us: int) -> str:
    """Returns a duration as a program may write it: exact, in the largest unit that divides it.

    >>> exact_duration(3_600_000_000), exact_duration(5_400_000_000), exact_duration(7 * 86_400_000_000)
    ('1 hour', '90 min', '7 days')
    """
    size, unit = next((u for u in _UNITS if us and us % u[0] == 0), (1_000_000, "s"))
    return plural(us // size, unit) if unit in ("day", "hour") else f"{us // size:,} {unit}".replace(",", "")


def duration(us: int) -> str:
    """Returns a duration in its two largest units: 250 ms, 10 s, 2 h 5 min, 7 d.

    >>> duration(0), duration(250_000), duration(7_500_000_000)
    ('0 s', '250 ms', '2 h 5 min')
    """
    if us < 1_000_000:
        return f"{us / 1000:.3g} ms" if us else "0 s"
    seconds = us // 1_000_000
    if seconds < 60:
        return f"{us / 1_000_000:.3g} s"
    parts = [(seconds // 86_400, "d"), (seconds // 3_600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next(i for i, (amount, _) in enumerate(parts) if amount)
    return " ".join(f"{amount} {unit}" for amount, unit in parts[first : first + 2] if amount)
