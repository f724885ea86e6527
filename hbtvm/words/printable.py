"""Text of files as terminals and logs may have it: on one line, without control characters, not too long."""

from __future__ import annotations


def shown(text: object, most: int = 80) -> str:
    """Text that somebody else wrote, fit for a message of ours.

    `text`: what to show; anything but a string by its ``str``.
    `most`: characters to show; of longer text the beginning, with an ellipsis.
    Returns what cannot be printed (control characters, terminal escapes, marks that turn the direction of
    writing, line ends) is written as Python escapes it, such as ``\\x1b``; without quotes around.
    """
    whole = text if isinstance(text, str) else str(text)
    # Cut first: what is to be shown of a huge name must not cost its length.
    cut = whole[: most + 1]
    plain = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in cut
    )
    return plain if len(plain) <= most else plain[: most - 1] + "…"
