"""LM Studio's `/v1/completions`: text, no template of its own by its documentation, and models that it loads when they are named.

Source: lmstudio.ai/docs, REST API v0 (`/api/v0/models`) and OpenAI compatibility. Ids it does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self, cast

from foretype_backend.engines.openai.engine import OpenAIEngine
from foretype_backend.engines.openai.events import OpenAIConfig
from foretype_backend.engines.openai.model_list import pick_model
from foretype_backend.errors import SaltIgnoredError

_IDLE_S: Final = 120.0
"""A model that it unloaded is loaded again with the next key."""


class LmStudioEngine(OpenAIEngine):
    """Engine port over LM Studio. The arguments are those of :class:`OpenAIEngine`; `text` has to be there."""

    @classmethod
    def from_config(cls, **config: object) -> Self:
        """From the fields of :class:`OpenAIConfig`, and the arguments."""
        own: dict[str, Any] = {name: config.pop(name) for name in cls.arguments if name in config}
        url = str(config.pop("url", "")).rstrip("/").removesuffix("/v1") + "/v1"
        text: Callable[[Sequence[int]], str] = own.pop("text")
        wire = OpenAIConfig.of(**{"idle_timeout_s": _IDLE_S} | config, url=url, send_token_ids=False)
        return cls(wire, text=text, shared=bool(own.get("shared", False)))

    async def _prove_salts(self) -> None:
        raise SaltIgnoredError(
            f"{self._config.url}: LM Studio cannot keep tenants apart. Put `vllm serve` there, which takes `cache_salt`"
        )

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
