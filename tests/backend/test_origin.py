"""What a request says of itself on its way to the engine: tenant, repository, document, and where its tokens came from."""

import pytest
from foretype_backend.config.settings import LimitsConfig
from foretype_wire.gateway_protocol import GatewaySession
from foretype_wire.messages import VERSION, Hello, Workspace

ROOTS = {"/home/a/shop": "shop", "/home/a/shop/vendor/lib/": "lib", "/home/a/with space": "space"}
WINDOWS = {
    "C:\\Users\\A\\shop": "shop",
    "c:\\Users\\A\\shop\\vendor\\lib\\": "lib",
    "D:\\": "disk",
    "\\\\server\\share\\far": "far",
}


@pytest.mark.parametrize(
    ("document", "repository"),
    [
        ("file:///home/a/shop/cart.py", "shop"),
        ("file:///home/a/shop/vendor/lib/x.py", "lib"),
        ("file:///home/a/shopping/x.py", ""),
        ("file:///home/a/with%20space/x.py", "space"),
        ("untitled:Untitled-1", ""),
        ("/home/a/shop/cart.py", "shop"),
        ("file://this-machine/home/a/shop/cart.py", "shop"),
        ("file://[/home/a/shop/cart.py", ""),
        ("vscode-remote://ssh/home/a/shop/cart.py", "shop"),
        ("file:///c%3A/Users/a/shop/cart.py", "shop"),
        ("file:///C:/Users/A/shop/vendor/lib/x.py", "lib"),
        ("file:///C:/Users/A/shopping/x.py", ""),
        ("file:///d:/x.py", "disk"),
        ("file://server/share/far/x.py", "far"),
        ("file://server/share/x.py", ""),
        ("C:\\Users\\A\\shop\\cart.py", "shop"),
        ("c:/Users/A/shop/cart.py", "shop"),
    ],
)
def test_a_document_belongs_to_the_longest_root_that_holds_it(document: str, repository: str) -> None:
    session = GatewaySession("c1", (), max_tokens=LimitsConfig().max_tokens)
    assert session.repository_of(document) == ""  # before `hello`
    workspaces = [Workspace(root=root, repository=name) for root, name in (ROOTS | WINDOWS).items()]
    session.greet(Hello(v=VERSION, workspaces=workspaces))
    assert session.repository_of(document) == repository
