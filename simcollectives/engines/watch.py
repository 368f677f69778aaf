"""How far a run is: engines tell a watch now and then, and what the watch raises ends the run."""

from collections.abc import Callable

Watch = Callable[[int], None]
"""Called with the number of messages played since it was last called."""
