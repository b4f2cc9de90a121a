"""Whether a change of weights, quantisation, layout or model is as good as what it replaces."""
