"""Make the bundled font: the characters of Noto Sans CJK KR that newspapers print, for pictures on any machine.

    python -m apps.fonts.make_font /usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc

The argument is the collection of Debian's package fonts-noto-cjk, version 2.004. The subset keeps the characters of
KS X 1001 (2,350 syllables, 4,888 Hanja, symbols) and Latin, and drops layout features and hints. A modified font must
have another name; the licence remains SIL OFL 1.1, in `OFL.txt`.
"""

import argparse
import io
import sys
from pathlib import Path

from corpora.foundation.command import run_command
from corpora.foundation.errors import DataError
from corpora.foundation.files import atomic_file, package_path

FONT_FILE = package_path("apps", "fonts", "PressBERTSansKR-Regular.otf")
FAMILY = "PressBERT Sans KR"
KOREAN = "Noto Sans CJK KR"
LATIN = (range(0x20, 0x7F), range(0xA0, 0x180), range(0x2010, 0x2028))
COPYRIGHT, FAMILY_ID, STYLE, UNIQUE, FULL, VERSION, POSTSCRIPT, LICENCE, LICENCE_URL = 0, 1, 2, 3, 4, 5, 6, 13, 14
KEPT_NAMES = (COPYRIGHT, FAMILY_ID, STYLE, UNIQUE, FULL, VERSION, POSTSCRIPT, LICENCE, LICENCE_URL)


def printed_characters() -> str:
    """Return the characters of KS X 1001, which EUC-KR encodes in two bytes, and Latin."""
    rows = range(0xA1, 0xFF)
    korean = bytes(byte for row in rows for cell in rows for byte in (row, cell)).decode("euc-kr", "ignore")
    return korean + "".join(chr(code) for codes in LATIN for code in codes)


def make_font(collection: Path) -> bytes:
    """Return the font as OpenType.

    Raises:
        DataError: the collection cannot be read, or has no Korean font.
    """
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTCollection, TTLibError

    try:
        fonts = TTCollection(collection, lazy=True).fonts
    except (OSError, TTLibError) as error:
        raise DataError(collection, f"not a font collection ({error})", "install fonts-noto-cjk") from error
    font = next((font for font in fonts if font["name"].getDebugName(FAMILY_ID) == KOREAN), None)
    if font is None:
        raise DataError(collection, f"no font called {KOREAN}", "give NotoSansCJK-Regular.ttc")
    subsetter = Subsetter(Options(hinting=False, layout_features=[], name_IDs=list(KEPT_NAMES), notdef_outline=True))
    subsetter.populate(text=printed_characters())
    subsetter.subset(font)
    plain = FAMILY.replace(" ", "")
    version = font["name"].getDebugName(VERSION).partition(";")[0]
    names = {
        FAMILY_ID: FAMILY,
        STYLE: "Regular",
        UNIQUE: f"{plain}-Regular; subset of {KOREAN} {version}",
        FULL: f"{FAMILY} Regular",
        POSTSCRIPT: f"{plain}-Regular",
    }
    for record in font["name"].names:
        if record.nameID in names:
            record.string = names[record.nameID]
    font["CFF "].cff.fontNames = [f"{plain}-Regular"]
    font["head"].modified = font["head"].created  # reproducible bytes
    font.recalcTimestamp = False
    buffer = io.BytesIO()
    font.save(buffer)
    return buffer.getvalue()


def main(argv: list[str] | None = None) -> int:
    """Write the font beside this file."""
    parser = argparse.ArgumentParser(description="Make the bundled font.")
    parser.add_argument("collection", type=Path, help="NotoSansCJK-Regular.ttc of fonts-noto-cjk")
    data = make_font(parser.parse_args(argv).collection)
    with atomic_file(FONT_FILE, "wb") as file:
        file.write(data)
    sys.stdout.write(f"{FONT_FILE} {len(data)} bytes\n")
    return 0


if __name__ == "__main__":
    run_command(main)
