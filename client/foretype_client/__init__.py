"""Client SDK: wire protocol, session, trigger policy, completion cache and the completion flow.

This file imports nothing, so that :mod:`foretype_wire.messages` costs msgspec alone.
"""
