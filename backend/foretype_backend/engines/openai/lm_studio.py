"""LM Studio's `/v1/completions`: text, no template of its own by its documentation, and models that it loads when they are named.

Source: lmstudio.ai/docs, REST API v0 (`/api/v0/models`) and OpenAI compatibility. Ids it does not take.
"""

from __future__ import annotations

from typing import Any, Self, cast

from foretype_backend.engines.openai.engine import LocalServerEngine
from foretype_backend.engines.openai.model_list import pick_model


class LmStudioEngine(LocalServerEngine):
    """Engine port over LM Studio. The arguments are those of :class:`OpenAIEngine`; `text` has to be there."""

    kind = "LM Studio"
    base = "/v1"

    @classmethod
    def from_config(cls, **config: object) -> Self:
        return super().from_config(**config | {"send_token_ids": False})

    async def _entries(self) -> list[dict[str, Any]]:
        listed = cast("object", (await self._request("GET", self._config.root("/api/v0/models"))).get("data"))
        entries = cast("list[object]", listed) if isinstance(listed, list) else []
        models = [cast("dict[str, Any]", one) for one in entries if isinstance(one, dict)]
        return [one for one in models if one.get("type", "llm") == "llm"]

    async def _find_model(self) -> None:
        models = await self._entries()
        loaded = [one for one in models if one.get("state") == "loaded"]
        offered = models if self._model or not loaded else loaded
        names = [str(one.get("id")) for one in offered]
        get = "; get it in LM Studio, and load it"
        self._model = pick_model(names, self._model or None, self._config.url, get=get, only=True)
        said = next((one for one in models if one.get("id") == self._model), dict[str, Any]())
        limit = said.get("loaded_context_length") or said.get("max_context_length")
        self._has_context(limit, more="load the model with a longer one in LM Studio")
