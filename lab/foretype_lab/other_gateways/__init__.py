"""The same load at other gateways before one scripted engine: `foretype bench peer-load`."""
