"""What runs inside vLLM's own process: an eviction policy for its host tier and a Redis tier behind it.

vLLM loads both by module path, out of tree (`cache_policy_module_path`, and `module_path` of a secondary tier). These modules
import vLLM, so nothing else of ours imports them; vLLM 0.32 and 0.33 have the interfaces, and call them experimental.
"""

from foretype_backend.prefix.retire_feed import RetireFeed

FEED = RetireFeed()
"""One per engine process: vLLM makes policy and tiers itself and lets nothing be passed between them."""
