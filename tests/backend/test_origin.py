"""What a request says of itself on its way to the engine: tenant, repository, document, and where its tokens came from."""

import pytest
from foretype_backend.config.settings import LimitsConfig
from foretype_wire.gateway_protocol import GatewaySession
from foretype_wire.messages import VERSION, Hello, Workspace


@pytest.mark.parametrize(
    ("document", "repository"),
    [
        ("file:///home/a/shop/cart.py", "shop"),
        ("file:///home/a/shop/vendor/lib/x.py", "lib"),
        ("file:///home/a/shopping/x.py", ""),
        ("file:///home/a/with%20space/x.py", "space"),
        ("untitled:Untitled-1", ""),
        ("/home/a/shop/cart.py", "shop"),
    ],
)
def test_a_document_belongs_to_the_longest_root_that_holds_it(document: str, repository: str) -> None:
    session = GatewaySession("c1", (), max_tokens=LimitsConfig().max_tokens)
    assert session.repository_of(document) == ""  # before `hello`
    roots = {"/home/a/shop": "shop", "/home/a/shop/vendor/lib/": "lib", "/home/a/with space": "space"}
    workspaces = [Workspace(root=root, repository=name) for root, name in roots.items()]
    session.greet(Hello(v=VERSION, workspaces=workspaces))
    assert session.repository_of(document) == repository
