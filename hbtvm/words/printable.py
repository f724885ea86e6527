"""Foreign text for terminals and logs: one line, no control characters, limited length."""

from __future__ import annotations


def shown(text: object, most: int = 80) -> str:
    """Return foreign text, escaped and shortened for a message.

    `text`: a string, or an object that ``str`` converts.
    `most`: characters to show; longer text is cut and ends in an ellipsis.
    Returns the text without quotes. Characters that cannot be printed (control characters, terminal escapes,
    direction marks, line ends) become Python escapes, such as ``\\x1b``.
    """
    whole = text if isinstance(text, str) else str(text)
    # Cut first: escaping a huge name would take long.
    cut = whole[: most + 1]
    plain = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in cut
    )
    return plain if len(plain) <= most else plain[: most - 1] + "…"
