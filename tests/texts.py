"""Texts of many scripts, and what tokenisers stumble over."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

DOCUMENTS = [
    "The quick brown fox, jumps over the lazy dog!",
    "",
    " ",
    "a b c",
    "Ünïcödé ΣΑΣ ΟΔΟΣ σας İstanbul ǅ ß ẞ ŉ ΐ",
    "naïve café  Cafe\u0301 \n\t x",
    "日本語 テキスト 漢字かな 한국어 텍스트",
    "emoji 😀😁 👩\u200d👩\u200d👧 zz",
    "nul\0byte a\0b",
    "under_score __init__ 12 3 4.5 don't",
    "हिन्दी भाषा का पाठ",
    "العربية نص عربي ١٢٣",
    "the the the fox fox",
    "ﬁ ligature ½ Ⅷ ① ²",
    "\u00a0nbsp\u2003em\u3000ideographic\u0085nel\x1cfs",
    "A" * 300 + " tail",
    "ÀÉÎÕÜ éèê ñ ç ø æ œ ł đ",
    "ΌΣΟΣ'Σ Σ. ΑΣ\u0301 ΑΣ\u0301Α Σ",
    "𝐁𝐨𝐥𝐝 𐐀𐐨 𞤀𞤢 🅰",
    "a  b\t\tc \u2003 d",
    "the dog is over the fox again and again",
]
"""Of these, no two letters in a row are surrogates."""

SURROGATES = ["\ud800 lone surrogate x\udfffy", "\udc80\udc80 ab"]
"""Texts that UTF-8 has no form of."""


def random_texts(seed: int, count: int, most: int = 40) -> list[str]:
    """Texts of characters from everywhere, ASCII letters and spaces more often than others."""
    rng = np.random.default_rng(seed)
    usual = np.array([ord(one) for one in "abcABC  \t_0ÉéΣσİẞ\u0301-"])
    found = []
    for _ in range(count):
        size = int(rng.integers(0, most))
        codes = np.where(rng.random(size) < 0.8, rng.choice(usual, size), rng.integers(1, 0x3000, size))
        far = rng.integers(0x3000, sys.maxunicode + 1, size)
        codes = np.where(rng.random(size) < 0.05, far, codes)
        codes = codes[(codes < 0xD800) | (codes > 0xDFFF)]
        found.append("".join(map(chr, codes.tolist())))
    return found


def texts_of(values: Sequence[Any]) -> np.ndarray:
    """Texts as `hbtvm.graph.columns.text.Vectorize.reference` takes them, shape (n, 1)."""
    out = np.empty((len(values), 1), object)
    out[:, 0] = values
    return out
