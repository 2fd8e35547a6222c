"""How the commands of the writing tools name a place in a text."""


def place_of(text: str, offset: int) -> str:
    """Return line and column of an offset, both from 1 on."""
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - text.rfind(chr(10), 0, offset)}"
