"""Traces from keystroke to engine step, by OpenTelemetry (the extra `otel`). Nothing here is imported where they are off."""
