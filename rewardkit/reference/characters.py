"""What each code point is to the matchers: read by the twins, and made into tables for the native kernels.

Everything comes from the running interpreter, whose Unicode version is what ``str.lower`` and ``re`` go by.
"""

from __future__ import annotations

import string
import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt

# ---- fold -----------------------------------------------------------------------------------------------------------

_SINGLE_QUOTES = "'‘’‚‛′‵ʹʻʼʽ´`‹›"
_DOUBLE_QUOTES = '"“”„‟″‶«»〝〞〟'
_SLASHES = "/⁄∕"
_COMMERCIAL_MARKS = "™®©℠℗"
_FILLERS = "\u034f\u115f\u1160\u3164\uffa0"  # invisible without being format characters
_VARIATION_SELECTORS = {
    *map(chr, range(0xFE00, 0xFE10)),
    *map(chr, range(0xE0100, 0xE01F0)),
    *"\u180b\u180c\u180d\u180f",
}
_TAG_CHARACTERS = {*map(chr, range(0xE0020, 0xE0080))}  # tell the flags of England and Scotland apart
_ARABIC_POINTS = {"\u066b": ".", "\u066c": ",", "\u066a": "%"}
# Compatibility forms that are the same character in another shape: their digits are digits.
_SHAPES = {
    "",
    "<wide>",
    "<narrow>",
    "<small>",
    "<font>",
    "<noBreak>",
    "<vertical>",
    "<initial>",
    "<medial>",
    "<final>",
    "<isolated>",
}
_SCRIPTED = "0123456789+-−=in"  # what a super- or subscript says something with; the others are typography ("1ᵉʳ")

PLAIN, SUPERSCRIPT, SUBSCRIPT, FRACTION = range(4)


@cache
def fold_character(char: str) -> tuple[int, str]:
    """What one code point becomes, and whether it is a superscript, a subscript or a fraction.

    Compatibility forms become plain, case is folded; dashes become ``-``, quotes ``'`` and ``"``, digits of other scripts
    ASCII, white space and controls a space; what cannot be seen vanishes, and so does the sign of a trade mark.
    """
    category = unicodedata.category(char)
    if category == "Cc" or category[0] == "Z":
        return PLAIN, " "
    if char in _SINGLE_QUOTES:
        return PLAIN, "'"
    if char in _DOUBLE_QUOTES:
        return PLAIN, '"'
    if char in _SLASHES:
        return PLAIN, "/"
    if char in _ARABIC_POINTS:
        return PLAIN, _ARABIC_POINTS[char]
    if char in _COMMERCIAL_MARKS or char in _FILLERS or char in _VARIATION_SELECTORS:
        return PLAIN, ""
    if category == "Cf" and char not in _TAG_CHARACTERS:
        return PLAIN, ""
    if category == "Pd" or char == "−":
        return PLAIN, "-"
    if category == "Nd":
        return PLAIN, str(unicodedata.decimal(char))
    shape, parts = _decomposition(char)
    if shape in ("<super>", "<sub>") and parts in _SCRIPTED:
        return (SUPERSCRIPT if shape == "<super>" else SUBSCRIPT), fold_character(parts)[1]
    if shape == "<fraction>":
        return FRACTION, "".join(fold_character(part)[1] for part in parts)
    if parts and (shape in _SHAPES or not any(part in string.digits for part in parts)):
        return PLAIN, "".join(_in_line(*fold_character(part)) for part in parts)
    if category[0] == "M":  # a mark has no case; folding it to a letter would undo the order of marks
        return PLAIN, char
    folded = char.casefold()
    return PLAIN, char if folded == char else "".join(fold_character(part)[1] for part in folded)


def _decomposition(char: str) -> tuple[str, str]:
    fields = unicodedata.decomposition(char).split()
    shape = fields.pop(0) if fields and fields[0].startswith("<") else ""
    return shape, "".join(chr(int(code, 16)) for code in fields)


def _in_line(kind: int, piece: str) -> str:
    return "^" + piece if kind == SUPERSCRIPT else piece


# ---- classes --------------------------------------------------------------------------------------------------------

SPACE, WORD, DOT, COMMA, MINUS, QUOTE, BREAK, OPERATOR, CURRENCY, UNIT = range(10)
_ASCII_CLASS = {
    **dict(zip(" .,-'\"", (SPACE, DOT, COMMA, MINUS, QUOTE, QUOTE), strict=True)),
    **dict.fromkeys("+#*/<=>^~|\\@", OPERATOR),
    **dict.fromkeys("%&‰‱", UNIT),
}


@cache
def character_class(char: str) -> int:
    """The class of a character of a folded text.

    An operator makes it another answer ("C++", "C#"); a currency, a unit or a picture says more about the same one.
    """
    if char in _ASCII_CLASS:
        return _ASCII_CLASS[char]
    category = unicodedata.category(char)
    if category in ("Sm", "Sc"):
        return OPERATOR if category == "Sm" else CURRENCY
    if category[0] == "S":
        return UNIT
    return BREAK if category[0] == "P" else WORD


_CJK = (
    (0x3005, 0x3007),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x20000, 0x3FFFF),
)


def is_cjk(char: str) -> bool:
    """Whether a code point belongs to a script that puts no spaces between words: Han, Hiragana, Katakana."""
    return any(low <= ord(char) <= high for low, high in _CJK)


# ---- tables for the native kernels ----------------------------------------------------------------------------------

# Planes 4 to 13, 15 and 16 hold no character that has a property here: unassigned and private, in every Unicode version.
_RANGES = (range(0x40000), range(0xE0000, 0xF0000))
_WORD, _SPACE, _DECIMAL, _CASED, _IGNORABLE, _MARK, _CJK_FLAG, _DELETED, _EXPANDS = (1 << bit for bit in range(9))


def _text(codes: npt.NDArray[np.uint32]) -> str:
    return codes.tobytes().decode("utf-32", "surrogatepass")


def _lower(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return np.frombuffer(_text(codes).lower().encode("utf-32", "surrogatepass"), np.uint32)[1:]  # the first is the BOM


def _cjk_codes(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    return np.logical_or.reduce([(codes >= low) & (codes <= high) for low, high in _CJK])


def official_table() -> tuple[npt.NDArray[np.uint32], dict[int, str]]:
    r"""Per code point of the tabled planes: lower case (21 bits) and flags above it; and what lower case makes longer.

    The flags, from bit 21: ``\w``, white space and decimal digit of the lower-case form; cased and case-ignorable, as the
    rule of the final sigma sees the code point itself; mark; Han or Kana; deleted punctuation; longer in lower case.
    """
    codes = np.concatenate([np.arange(codes.start, codes.stop, dtype=np.uint32) for codes in _RANGES])
    longer = {ord(char): char.lower() for char in _text(codes) if len(char.lower()) > 1}
    lone = np.isin(codes, list(longer))  # stands for itself below; a cased letter, as whatever has a lower case
    plain = np.where(lone, np.uint32(ord("A")), codes)
    columns = [np.full(len(codes), ord(char), np.uint32) for char in "A\nΣ"]
    lower = np.where(lone, codes, _lower(np.stack([columns[1], plain], 1).ravel())[1::2])  # no sigma is final here
    # A sigma is final after a cased letter, whatever case-ignorable stands between them: so these two texts tell both.
    final = [
        _lower(np.stack([before, plain, columns[2], columns[1]], 1).ravel())[2::4] == ord("ς") for before in columns[:2]
    ]
    text = _text(lower)
    flags = np.zeros(len(codes), np.uint32)
    for flag, present in (
        (_WORD, map(str.isalnum, text)),
        (_SPACE, map(str.isspace, text)),
        (_DECIMAL, map(str.isdecimal, text)),
        (_CASED, final[1]),
        (_IGNORABLE, final[0] & ~final[1]),
        (_MARK, [category[0] == "M" for category in map(unicodedata.category, text)]),
        (_CJK_FLAG, _cjk_codes(lower)),
        (_DELETED, np.isin(lower, list(map(ord, string.punctuation)))),
        (_EXPANDS, lone),
    ):
        flags |= np.where(np.fromiter(present, np.bool_, len(codes)), np.uint32(flag), np.uint32(0))
    return lower | flags << np.uint32(21), longer


def folding_table() -> tuple[
    npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.uint8]
]:
    """The folded form of each code point of the tabled planes, what long forms are made of, classes, combining classes.

    An entry holds the single code point of the form, or where it starts in the second array (21 bits); its kind (2 bits);
    its length (5 bits). A class has the bit 16 for a mark, 32 for Han and Kana. The third and fourth array describe
    characters of a folded text.
    """
    codes = np.concatenate([np.arange(codes.start, codes.stop, dtype=np.uint32) for codes in _RANGES])
    forms = codes | np.uint32(1 << 23)
    pool: list[int] = []
    classes = np.where(_cjk_codes(codes), np.uint8(WORD | 32), np.uint8(WORD))
    combining = np.zeros(len(codes), np.uint8)
    for page in range(0, len(codes), 256):
        text = _text(codes[page : page + 256])
        alike = unicodedata.is_normalized("NFKD", text) and {*map(unicodedata.category, text)} <= {
            "Lo",
            "Cn",
            "Co",
            "Cs",
        }
        if alike and not any(filler in text for filler in _FILLERS):
            continue  # letters without case that stand for themselves, which most of the table is
        for at, char in enumerate(text, start=page):
            category = unicodedata.category(char)
            if category in ("Cn", "Co", "Cs"):
                continue
            classes[at] = classes[at] & 32 | character_class(char) | (16 if category[0] == "M" else 0)
            combining[at] = unicodedata.combining(char)
            kind, piece = fold_character(char)
            piece = unicodedata.normalize("NFD", piece)
            if len(piece) == 1:
                forms[at] = ord(piece) | kind << 21 | 1 << 23
            else:
                forms[at] = len(pool) | kind << 21 | len(piece) << 23
                pool.extend(map(ord, piece))
    return forms, np.array(pool or [0], np.uint32), classes, combining
