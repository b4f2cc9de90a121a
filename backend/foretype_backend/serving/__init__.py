"""One request on its way through the gateway: rendered, admitted, generated, answered."""
