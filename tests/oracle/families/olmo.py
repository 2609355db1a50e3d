"""The cases of OLMo and others of its kind."""

from __future__ import annotations

from typing import Any

from case import case

RAW: dict[str, Any] = {}
CASES = {
    "seed-oss": case("SeedOssConfig", head_dim=32),
    "olmo": case("OlmoConfig", clip_qkv=8.0),
    "olmo3": case("Olmo3Config", sliding_window=64),
}
