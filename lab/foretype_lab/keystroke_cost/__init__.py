"""What context costs the editor's process: assembly, keystrokes, memory."""
