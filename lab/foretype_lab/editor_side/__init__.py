"""What the language server costs an editor besides its keys: import, memory, idling, and a file that was just opened."""
