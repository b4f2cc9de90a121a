"""The gateway - doors, admission, rendering and engines."""
