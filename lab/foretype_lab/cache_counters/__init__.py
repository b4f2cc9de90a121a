"""Does a real engine's own cached-token counter say what the simulation says?"""
