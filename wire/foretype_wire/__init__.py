"""What both ends of the wire must agree on: messages, codec, both state machines, segment cache, telemetry events, redaction."""
