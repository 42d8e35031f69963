"""Clocks for tests: time passes only when somebody sleeps."""


class SteppingClock:
    """Starts at zero and jumps by every sleep, which it remembers."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def wall(self) -> float:
        return sum(self.slept)

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
